// From the TOML text to Sweep::Data.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "sweeps/sweep_data.h"

namespace headsweep {
namespace {

constexpr std::size_t kLongestName = 100;  // a directory's name, with room for suffixes
constexpr std::int64_t kMostSeeds = 1'000'000;
constexpr std::uint64_t kMostPoints = std::uint64_t{1} << 62;

const char* const kSections[] = {"task", "model", "train", "run"};

bool IsSection(const std::string& name) {
  return std::find(std::begin(kSections), std::end(kSections), name) != std::end(kSections);
}

class SweepReader {
 public:
  SweepReader(Sweep::Data& data, Complaints& complaints) : data_(data), complaints_(complaints) {
    for (const char* word :
         {"name", "seed", "task", "model", "train", "grid", "zip", "include", "exclude", "prune", "run"}) {
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
    NameAxes();
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
      if (const RawTable* table = AsTable(entry)) ReadGrid(*table);
    } else if (key == "zip" || key == "exclude" || key == "include") {
      ForEachTable(entry, [&](const RawTable& table, Position at) {
        if (key == "zip") ReadZip(table, at);
        if (key == "exclude") ReadExclude(table, at);
        if (key == "include") ReadInclude(table, at);
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

  // --- Axes
  // ------------------------------------------------------------------------------------------------------------
  // Calls use(key, entry) for every key of a table; "model.heads", [grid.model] heads and heads are the same.
  template <class Use>
  void ForEachKey(const RawTable& table, const std::string& where, Use use, const std::string& prefix = "") {
    for (const RawEntry& entry : table) {
      const std::string name = prefix.empty() ? entry.key : prefix + "." + entry.key;
      const auto* inner = std::get_if<RawTable>(&entry.value.data);
      if (prefix.empty() && inner != nullptr && (IsSection(name) || name == "prune")) {
        ForEachKey(*inner, where, use, name);
        continue;
      }
      std::vector<std::string> candidates;
      const int key = FindKeyByAnyName(name, &candidates);
      if (key < 0 && candidates.size() > 1) {
        complaints_.Add(entry.at, fmt::format("\"{}\" may mean {}: write the whole name", name,
                                              fmt::join(candidates, " or ")));
      } else if (key < 0 || Key(key).use == KeyUse::kInternal) {
        ComplainUnknown(entry.at, name, false);
      } else if (Key(key).use == KeyUse::kPruning) {
        complaints_.Add(
            entry.at,
            fmt::format("{} cannot be in {}: pruning is a stage after training; write it under [prune]",
                        Key(key).name, where));
      } else if (Key(key).use == KeyUse::kExecution) {
        complaints_.Add(
            entry.at,
            fmt::format("{} cannot be in {}: it does not change the result, so all its trials would be "
                        "the same",
                        Key(key).name, where));
      } else {
        use(key, entry);
      }
    }
  }

  // The values of an axis: a list, or one value. nullopt where not even their number is known.
  std::optional<std::vector<Setting>> ReadValues(int key, const RawEntry& entry) {
    const KeySpec& spec = Key(key);
    if (spec.name == "seed" && std::holds_alternative<RawTable>(entry.value.data)) return ReadSeeds(entry);
    std::vector<Setting> values;
    if (const auto* items = std::get_if<RawArray>(&entry.value.data)) {
      if (items->empty()) {
        complaints_.Add(entry.value.at, fmt::format("the axis {} is empty", spec.name));
        return std::nullopt;
      }
      for (const RawValue& item : *items) values.push_back(ReadSetting(spec, item, complaints_));
    } else {
      values.push_back(ReadSetting(spec, entry.value, complaints_));
    }
    return values;
  }

  // { count = 3 }: the sweep's seed and those after it; { values = [3, 5] }.
  std::optional<std::vector<Setting>> ReadSeeds(const RawEntry& entry) {
    const auto& table = std::get<RawTable>(entry.value.data);
    const KeySpec& seed = Key(FindKey("seed"));
    if (table.size() == 1 && table[0].key == "values") {
      RawEntry values = table[0];
      if (std::holds_alternative<RawTable>(values.value.data)) values.value.data = RawDate{};
      return ReadValues(FindKey("seed"), values);
    }
    if (table.size() != 1 || table[0].key != "count") {
      complaints_.Add(entry.value.at, "seed takes a number, a list, { count = 3 } or { values = [1, 2, 3] }");
      return std::nullopt;
    }
    const std::optional<std::int64_t> count = ReadCount(table[0].value, "seed.count");
    const Value* first = data_.base[static_cast<std::size_t>(FindKey("seed"))]->literal();
    if (!count || first == nullptr) return std::nullopt;
    std::vector<Setting> values;
    for (std::int64_t i = 0; i < *count; ++i) {
      const Value value = std::get<std::int64_t>(*first) + i;
      if (std::string problem = RangeProblem(seed, value); !problem.empty()) {
        complaints_.Add(entry.value.at, problem);
        return std::nullopt;
      }
      values.push_back({table[0].value.at, value});
    }
    return values;
  }

  std::optional<std::int64_t> ReadCount(const RawValue& raw, const char* what) {
    std::optional<std::int64_t> count;
    if (const auto* integer = std::get_if<std::int64_t>(&raw.data)) count = *integer;
    if (const auto* number = std::get_if<double>(&raw.data);
        number != nullptr && *number >= 1 && *number <= kMostSeeds &&
        *number == static_cast<double>(static_cast<std::int64_t>(*number))) {
      count = static_cast<std::int64_t>(*number);
    }
    if (!count || *count < 1 || *count > kMostSeeds) {
      complaints_.Add(raw.at, fmt::format("{} must be a whole number from 1 to {}", what, kMostSeeds));
      return std::nullopt;
    }
    return count;
  }

  // The key as an axis; false: it is one already.
  bool Claim(int key, Position at) {
    const auto [found, is_new] = claimed_.try_emplace(key, at);
    if (is_new) return true;
    complaints_.Add(at, fmt::format("{} is an axis already, at line {}, column {}", Key(key).name,
                                    found->second.line, found->second.column));
    return false;
  }

  void ReadGrid(const RawTable& table) {
    ForEachKey(table, "[grid]", [&](int key, const RawEntry& entry) {
      std::optional<std::vector<Setting>> values = ReadValues(key, entry);
      if (!Claim(key, entry.at) || !values) return;
      SweepAxis axis{"", entry.at, {key}, {}};
      for (Setting& value : *values) AddRow({std::move(value)}, axis);
      data_.axes.push_back(std::move(axis));
    });
  }

  void ReadZip(const RawTable& table, Position at) {
    SweepAxis axis{"", at, {}, {}};
    std::vector<std::vector<Setting>> columns;
    bool good = true;
    ForEachKey(table, "[[zip]]", [&](int key, const RawEntry& entry) {
      std::optional<std::vector<Setting>> values;
      if (std::holds_alternative<RawArray>(entry.value.data) ||
          std::holds_alternative<RawTable>(entry.value.data)) {
        values = ReadValues(key, entry);
      } else {
        complaints_.Add(entry.value.at, fmt::format("{} in [[zip]] must be a list of values, not {}",
                                                    Key(key).name, TypeName(entry.value)));
      }
      if (!Claim(key, entry.at) || !values) {
        good = false;
        return;
      }
      if (!columns.empty() && values->size() != columns.front().size()) {
        complaints_.Add(
            entry.at,
            fmt::format("the axes of a [[zip]] move together: {} has {} values, but {} has {}", Key(key).name,
                        values->size(), Key(axis.keys.front()).name, columns.front().size()));
        good = false;
        return;
      }
      axis.keys.push_back(key);
      columns.push_back(std::move(*values));
    });
    if (table.empty()) complaints_.Add(at, "[[zip]] is empty");
    if (columns.empty() || !good) return;
    for (std::size_t row = 0; row < columns.front().size(); ++row) {
      std::vector<Setting> settings;
      for (auto& column : columns) settings.push_back(std::move(column[row]));
      AddRow(std::move(settings), axis);
    }
    data_.axes.push_back(std::move(axis));
  }

  // Appends a row unless the axis has one that is written the same: labels of a dimension are unique.
  void AddRow(std::vector<Setting> row, SweepAxis& axis) {
    std::string label;
    bool wrong = false;
    for (std::size_t i = 0; i < row.size(); ++i) {
      label += fmt::format("{}{} = {}", label.empty() ? "" : ", ", Key(axis.keys[i]).name, Label(row[i]));
      wrong = wrong || std::holds_alternative<std::monostate>(row[i].value);
    }
    if (!wrong && !rows_seen_[axis.at].insert(label).second) {
      Warn(row.front().at, fmt::format("{} is on this axis already", label));
      return;
    }
    axis.rows.push_back(std::move(row));
  }

  void Warn(Position at, std::string message) {
    data_.warnings.push_back({data_.file, at.line, at.column, std::move(message)});
  }

  // --- Rules and extra points
  // ------------------------------------------------------------------------------------------
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

  void ReadInclude(const RawTable& table, Position at) {
    IncludeBlock block;
    block.at = at;
    std::set<int> seen;
    if (table.empty()) complaints_.Add(at, "[[include]] is empty");
    ForEachKey(table, "[[include]]", [&](int key, const RawEntry& entry) {
      std::optional<std::vector<Setting>> values = ReadValues(key, entry);
      if (!seen.insert(key).second) {
        complaints_.Add(entry.at, fmt::format("{} is in this [[include]] already", Key(key).name));
        return;
      }
      if (!values) return;
      SweepAxis axis{"", entry.at, {key}, {}};
      for (Setting& value : *values) AddRow({std::move(value)}, axis);
      block.axes.push_back(std::move(axis));
    });
    if (!block.axes.empty()) data_.includes.push_back(std::move(block));
  }

  // --- Pruning
  // ---------------------------------------------------------------------------------------------------------
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
    if (seeds_at.line > 0 && !random) Warn(seeds_at, "prune.seeds has no effect without order \"random\"");
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
        Warn(item.at, fmt::format("order {} is in the list already", QuoteToml(name)));
    }
  }

  void ReadRandomSeeds(const RawEntry& entry, PruneOrders& prune) {
    const KeySpec& spec = Key(FindKey("prune.seed"));
    const auto* list = std::get_if<RawArray>(&entry.value.data);
    if (list == nullptr) {
      const std::optional<std::int64_t> count = ReadCount(entry.value, "prune.seeds");
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
        Warn(item.at, fmt::format("seed {} is in the list already", number));
      }
    }
  }

  // --- The whole
  // ---------------------------------------------------------------------------------------------------------
  // An axis is called after its key; a [[zip]] after its first key whose values are all different, else after
  // all of them.
  void NameAxes() {
    std::set<std::string> taken;
    for (SweepAxis& axis : data_.axes) {
      axis.name = ShortName(Key(NamingKey(axis)));
      if (!taken.insert(axis.name).second) {
        axis.name = Key(axis.keys.front()).name;
        std::replace(axis.name.begin(), axis.name.end(), '.', '_');
        taken.insert(axis.name);
      }
    }
  }

  static int NamingKey(const SweepAxis& axis) {
    for (std::size_t i = 0; i < axis.keys.size(); ++i) {
      std::set<std::string> labels;
      for (const auto& row : axis.rows) labels.insert(Label(row[i]));
      if (labels.size() == axis.rows.size()) return axis.keys[i];
    }
    return axis.keys.front();
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
  std::vector<std::string> known_top_, known_names_;
  std::map<int, Position> claimed_;  // keys that are axes
  std::map<Position, std::set<std::string>> rows_seen_;
  bool name_seen_ = false;
};

}  // namespace

void ReadSweep(const std::string& text, Sweep::Data& data, Complaints& complaints) {
  const RawTable top = ParseDocument(text, complaints);
  SweepReader(data, complaints).Read(top, !complaints.empty());
}

}  // namespace headsweep
