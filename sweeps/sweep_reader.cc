// From the TOML text to Sweep::Data.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "sweeps/axis_reader.h"
#include "sweeps/sweep_data.h"

namespace headsweep {
namespace {

constexpr std::size_t kLongestName = 100;  // a directory's name, with room for suffixes
constexpr std::uint64_t kMostPoints = std::uint64_t{1} << 62;

class SweepReader {
 public:
  SweepReader(Sweep::Data& data, Complaints& complaints)
      : data_(data), complaints_(complaints), axes_(data, complaints) {
    for (const char* word :
         {"name", "seed", "task", "model", "train", "grid", "zip", "include", "exclude", "prune", "run",
          "early_stopping"}) {
      known_top_.push_back(word);
    }
    known_names_ = KeyNames();
    data_.base = DefaultSettings();
  }

  void Read(const RawTable& top, bool damaged) {
    for (const RawEntry& entry : top) {
      if (entry.key == "seed") ReadBase(FindKey("seed"), entry);
    }
    for (const RawEntry& entry : top) ReadTop(entry);
    if (data_.name.empty() && !name_seen_ && !damaged) {
      complaints_.Add({1, 1}, "the sweep has no name: write name = \"…\" on top");
    }
    axes_.NameAxes();
    CountPoints();
  }

 private:
  void ReadTop(const RawEntry& entry) {
    const std::string& key = entry.key;
    if (key == "name") {
      ReadName(entry.value);
    } else if (key == "seed") {
      // done already: [grid] counts from it
    } else if (IsSection(key)) {
      if (const RawTable* table = AsTable(entry)) ReadSection(*table, key);
    } else if (key == "prune") {
      if (const RawTable* table = AsTable(entry)) ReadPrune(*table);
    } else if (key == "grid") {
      if (const RawTable* table = AsTable(entry)) axes_.ReadGrid(*table);
    } else if (key == "zip" || key == "exclude" || key == "include") {
      ForEachTable(entry, [&](const RawTable& table, Position at) {
        if (key == "zip") axes_.ReadZip(table, at);
        if (key == "exclude") ReadExclude(table, at);
        if (key == "include") axes_.ReadInclude(table, at);
      });
    } else if (const int index = FindKey(key); index >= 0 && IsSection(key.substr(0, key.find('.')))) {
      ReadBase(index, entry);  // "model.heads" = 4 on top
    } else {
      ComplainUnknown(entry.at, key, true);
    }
  }

  const RawTable* AsTable(const RawEntry& entry) {
    const auto* table = std::get_if<RawTable>(&entry.value.data);
    if (table == nullptr) {
      complaints_.Add(entry.at, fmt::format("{} must be a section, [{}], not {}", entry.key, entry.key,
                                            TypeName(entry.value)));
    }
    return table;
  }

  // [[key]] any number of times, or [key] once.
  template <class Use>
  void ForEachTable(const RawEntry& entry, Use use) {
    if (const auto* table = std::get_if<RawTable>(&entry.value.data)) return use(*table, entry.at);
    const auto* tables = std::get_if<RawArray>(&entry.value.data);
    const bool good = tables != nullptr && std::all_of(tables->begin(), tables->end(), [](const RawValue& v) {
                        return std::holds_alternative<RawTable>(v.data);
                      });
    if (!good) {
      complaints_.Add(entry.at, fmt::format("{} must be written as [[{}]]", entry.key, entry.key));
      return;
    }
    for (const RawValue& table : *tables) use(std::get<RawTable>(table.data), table.at);
  }

  void ComplainUnknown(Position at, const std::string& name, bool top) {
    std::vector<std::string> known = top ? known_top_ : std::vector<std::string>{};
    known.insert(known.end(), known_names_.begin(), known_names_.end());
    ComplainUnknownKey(at, name, known, complaints_);
  }

  void ReadName(const RawValue& raw) {
    name_seen_ = true;
    const auto* text = std::get_if<std::string>(&raw.data);
    if (text == nullptr) {
      complaints_.Add(raw.at, fmt::format("name must be text, not {}", TypeName(raw)));
      return;
    }
    const bool control = std::any_of(
        text->begin(), text->end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
    if (text->empty() || text->front() == '.' || text->front() == '-' ||
        text->find('/') != std::string::npos || control || text->size() > kLongestName) {
      complaints_.Add(
          raw.at,
          fmt::format("name = {} cannot be the name of a directory: it must have 1 to {} bytes, no \"/\" "
                      "and no control characters, and not start with \".\" or \"-\"",
                      QuoteToml(*text), kLongestName));
      return;
    }
    data_.name = *text;
  }

  void ReadSection(const RawTable& table, const std::string& section) {
    for (const RawEntry& entry : table) {
      const std::string name = section + "." + entry.key;
      const int key = FindKey(name);
      if (key >= 0 && Key(key).use != KeyUse::kInternal)
        ReadBase(key, entry);
      else
        ComplainUnknown(entry.at, name, false);
    }
  }

  void ReadBase(int key, const RawEntry& entry) {
    if (Key(key).name == "seed" && !std::holds_alternative<std::int64_t>(entry.value.data) &&
        !std::holds_alternative<double>(entry.value.data)) {
      complaints_.Add(entry.value.at,
                      fmt::format("seed must be a number here, not {}; several seeds go under [grid]: seed = "
                                  "{{ count = 3 }}",
                                  TypeName(entry.value)));
      return;
    }
    data_.written.push_back(std::make_unique<Setting>(ReadSetting(Key(key), entry.value, complaints_)));
    data_.base[static_cast<std::size_t>(key)] = data_.written.back().get();
  }

  void ReadExclude(const RawTable& table, Position at) {
    const RawValue* when = nullptr;
    for (const RawEntry& entry : table) {
      if (entry.key == "when") {
        when = &entry.value;
      } else {
        complaints_.Add(
            entry.at,
            fmt::format("unknown key \"{}\" in [[exclude]]; it takes when = \"a condition\"", entry.key));
      }
    }
    if (when == nullptr) {
      if (table.empty()) complaints_.Add(at, "[[exclude]] needs when = \"a condition\"");
      return;
    }
    const auto* text = std::get_if<std::string>(&when->data);
    if (text == nullptr) {
      complaints_.Add(when->at, fmt::format("when must be a condition in quotes, not {}", TypeName(*when)));
      return;
    }
    std::string problem;
    std::shared_ptr<const Expression> condition = Expression::Compile(*text, &problem);
    if (condition != nullptr) {
      for (const int key : condition->keys()) {
        if (Key(key).use == KeyUse::kPruning)
          problem = Key(key).name + " belongs to a stage after training; conditions are about trials";
      }
    }
    if (!problem.empty()) {
      complaints_.Add(when->at, fmt::format("when = {}: {}", QuoteToml(*text), problem));
      return;
    }
    data_.excludes.push_back({std::move(condition), when->at});
  }

  void ReadPrune(const RawTable& table) {
    PruneOrders prune;
    Position seeds_at;
    bool orders_read = false;
    for (const RawEntry& entry : table) {
      if (entry.key == "order") {
        orders_read = true;
        ReadOrders(entry, prune);
      } else if (entry.key == "seeds") {
        seeds_at = entry.at;
        ReadRandomSeeds(entry, prune);
      } else if (entry.key == "seed") {
        complaints_.Add(entry.at, "the seeds of order random are written seeds = 3 or seeds = [1, 2, 3]");
      } else if (const int key = FindKey("prune." + entry.key); key >= 0) {
        ReadBase(key, entry);
      } else {
        std::vector<std::string> known = {"prune.seeds"};
        for (const KeySpec& spec : AllKeys()) {
          if (spec.use == KeyUse::kPruning && spec.name != "prune.seed") known.push_back(spec.name);
        }
        ComplainUnknownKey(entry.at, "prune." + entry.key, known, complaints_);
      }
    }
    if (!orders_read) prune.orders = {"importance"};
    const bool random = std::find(prune.orders.begin(), prune.orders.end(), "random") != prune.orders.end();
    if (seeds_at.line > 0 && !random)
      data_.Warn(seeds_at, "prune.seeds has no effect without order \"random\"");
    if (prune.random_seeds.empty()) prune.random_seeds = {1};
    data_.prune = std::move(prune);
  }

  void ReadOrders(const RawEntry& entry, PruneOrders& prune) {
    RawArray items;
    if (const auto* list = std::get_if<RawArray>(&entry.value.data))
      items = *list;
    else
      items = {entry.value};
    if (items.empty()) complaints_.Add(entry.value.at, "the list of prune.order is empty");
    for (const RawValue& item : items) {
      const Setting order = ReadSetting(Key(FindKey("prune.order")), item, complaints_);
      if (order.literal() == nullptr) continue;
      const auto& name = std::get<std::string>(*order.literal());
      if (std::find(prune.orders.begin(), prune.orders.end(), name) == prune.orders.end())
        prune.orders.push_back(name);
      else
        data_.Warn(item.at, fmt::format("order {} is in the list already", QuoteToml(name)));
    }
  }

  void ReadRandomSeeds(const RawEntry& entry, PruneOrders& prune) {
    const KeySpec& spec = Key(FindKey("prune.seed"));
    const auto* list = std::get_if<RawArray>(&entry.value.data);
    if (list == nullptr) {
      const std::optional<std::int64_t> count = ReadCount(entry.value, "prune.seeds", complaints_);
      for (std::int64_t i = 1; count && i <= *count; ++i)
        prune.random_seeds.push_back(static_cast<std::uint64_t>(i));
      return;
    }
    if (list->empty()) complaints_.Add(entry.value.at, "the list of prune.seeds is empty");
    for (const RawValue& item : *list) {
      const Setting seed = ReadSetting(spec, item, complaints_);
      const Value* value = seed.literal();
      if (value == nullptr) {
        if (seed.expression() != nullptr) complaints_.Add(item.at, "prune.seeds takes plain numbers");
        continue;
      }
      const auto number = static_cast<std::uint64_t>(std::get<std::int64_t>(*value));
      if (std::find(prune.random_seeds.begin(), prune.random_seeds.end(), number) ==
          prune.random_seeds.end()) {
        prune.random_seeds.push_back(number);
      } else {
        data_.Warn(item.at, fmt::format("seed {} is in the list already", number));
      }
    }
  }

  void CountPoints() {
    data_.grid_count = Product(data_.axes, {1, 1});
    for (IncludeBlock& block : data_.includes) {
      block.points = Product(block.axes, block.at);
      data_.include_count += block.points;
    }
  }

  std::uint64_t Product(const std::vector<SweepAxis>& axes, Position at) {
    std::uint64_t product = 1;
    for (const SweepAxis& axis : axes) {
      if (axis.size() > kMostPoints / product) {
        complaints_.Add(at, "the grid has more than 2^62 points");
        return 1;
      }
      product *= axis.size();
    }
    return product;
  }
  Sweep::Data& data_;
  Complaints& complaints_;
  AxisReader axes_;
  std::vector<std::string> known_top_, known_names_;
  bool name_seen_ = false;
};

}  // namespace

void ReadSweep(const std::string& text, Sweep::Data& data, Complaints& complaints) {
  const RawTable top = ParseDocument(text, complaints);
  SweepReader(data, complaints).Read(top, !complaints.empty());
}

}  // namespace headsweep
