// Identity, config.toml and its reader, driven by the table of keys.
#include "sweeps/stage_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "cluster/base/errors.h"
#include "sweeps/schema.h"

namespace headsweep {
namespace {

using ::testing::HasSubstr;

StageConfig Example() {
  StageConfig config;
  config.task.fingerprint = "0123456789abcdef";
  return config;
}

// Another value of the same key, allowed by the table.
Value Changed(const KeySpec& key, const Value& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer + 1;
  if (const auto* number = std::get_if<double>(&value)) return *number * 0.5 + 0.25;
  if (const auto* boolean = std::get_if<bool>(&value)) return !*boolean;
  if (const auto* heads = std::get_if<std::vector<std::int64_t>>(&value)) {
    auto more = *heads;
    more.back() += 1;
    return more;
  }
  for (const std::string& choice : key.choices) {
    if (choice != std::get<std::string>(value)) return choice;
  }
  return std::get<std::string>(value) + "x";
}

TEST(StageConfig, TheTableAndTheStructHaveTheSameDefaults) {
  const StageConfig parsed = ParseStageConfig("", "empty.toml");
  const StageConfig initial;
  for (const KeySpec& key : AllKeys()) {
    EXPECT_EQ(GetField(key, parsed), GetField(key, initial)) << key.name;
  }
}

TEST(StageConfig, EveryIdentityKeyChangesTheIdAndNoOtherKeyDoes) {
  for (const StageKind kind : {StageKind::kTrain, StageKind::kPrune}) {
    StageConfig config = Example();
    config.kind = kind;
    if (kind == StageKind::kPrune) {
      config.parent = "fedcba9876543210";
      config.prune.order = "importance";
    }
    const std::string id = ComputeStageId(config);
    EXPECT_EQ(id.size(), 16u);
    for (const KeySpec& key : AllKeys()) {
      StageConfig changed = config;
      const Value value = Changed(key, GetField(key, config));
      if (value == GetField(key, config) || (!key.choices.empty() && key.choices.size() < 2)) continue;
      SetField(key, value, changed);
      const bool matters = key.in_identity() && (key.use != KeyUse::kPruning || kind == StageKind::kPrune);
      EXPECT_EQ(ComputeStageId(changed) != id, matters) << key.name;
    }
  }
}

TEST(StageConfig, RunMicroBatchCheckpointsAndTheCorpusNameAreNoIdentity) {
  const StageConfig config = Example();
  StageConfig other = config;
  other.run = {.devices = 4, .retries = 9, .priority = 3, .threads = 16, .device = "cuda"};
  other.train.micro_batch = 8;
  other.train.checkpoint_every = 7;
  other.task.corpus = "/somewhere/else.txt";
  other.id = "whatever";
  EXPECT_EQ(ComputeStageId(other), ComputeStageId(config));
}

TEST(StageConfig, PruneStagesDifferByParent) {
  StageConfig config = Example();
  config.kind = StageKind::kPrune;
  config.prune.order = "ablation";
  config.parent = "a";
  const std::string id = ComputeStageId(config);
  config.parent = "b";
  EXPECT_NE(ComputeStageId(config), id);
}

TEST(StageConfig, CanonicalJsonHasSortedKeysAndShortNumbers) {
  StageConfig config = Example();
  config.train.learning_rate = 0.1 + 0.2;
  const std::string json = CanonicalJson(config);
  EXPECT_THAT(
      json, HasSubstr("{\"kind\":\"train\",\"model\":{\"activation\":\"gelu\",\"dropout\":0,\"embed\":128,"));
  EXPECT_THAT(json, HasSubstr("\"learning_rate\":0.30000000000000004"));
  config.train.learning_rate = 0.3;
  EXPECT_THAT(CanonicalJson(config), HasSubstr("\"learning_rate\":0.3,"));
  config.model.dropout = -0.0;
  EXPECT_THAT(CanonicalJson(config), HasSubstr("\"dropout\":0,"));
}

// The identity of the defaults is pinned: a change here repeats everybody's experiments, so it must be a
// decision (kNumericsVersion, or a new key whose default keeps the old meaning).
TEST(StageConfig, IdentityDoesNotDriftBetweenReleases) {
  EXPECT_EQ(
      CanonicalJson(Example()),
      R"({"kind":"train","model":{"activation":"gelu","dropout":0,"embed":128,"feed_forward":512,"head_size":32,)"
      R"("heads":[4,4],"layers":2,"norm":"pre","positions":"learned","tied":true},"numerics":1,"seed":1,)"
      R"("task":{"fingerprint":"0123456789abcdef","kind":"language-model","length":128,"packing":"stream",)"
      R"("vocabulary":4000},"train":{"batch":16,"beta1":0.9,"beta2":0.98,"clip_norm":1,"epsilon":1e-08,)"
      R"("evaluate_every":100,"evaluate_examples":0,"final_learning_rate":0.1,"label_smoothing":0,)"
      R"("learning_rate":0.001,"schedule":"cosine","steps":400,"warmup_steps":40,"weight_decay":0.01}})");
}

TEST(StageConfig, IdentityIgnoresOrderLayoutAndSpellingOfNumbers) {
  const StageConfig a = ParseStageConfig(
      "seed = 7\n[task]\nfingerprint = \"f\"\n[train]\nsteps = 3000000\nlearning_rate = "
      "0.001\nevaluate_every = 1000\n"
      "[model]\nheads = 4\nlayers = 2\n",
      "a.toml");
  const StageConfig b = ParseStageConfig(
      "# another day\nseed = 7.0\nmodel.layers = 2.0\nmodel.heads = [4, 4]\n[train]\nevaluate_every = 1e3\n"
      "learning_rate = 1e-3\nsteps = 3e6\n[task]\n  fingerprint = 'f'\n",
      "b.toml");
  EXPECT_EQ(ComputeStageId(a), ComputeStageId(b));
}

TEST(StageConfig, DefaultsFollowOtherKeys) {
  const StageConfig config =
      ParseStageConfig("[model]\nembed = 256\nheads = 8\n[train]\nsteps = 1000\n", "a.toml");
  EXPECT_EQ(config.model.head_size, 32);
  EXPECT_EQ(config.model.feed_forward, 1024);
  EXPECT_EQ(config.train.warmup_steps, 100);
  EXPECT_EQ(config.model.heads, (std::vector<int>{8, 8}));
}

StageConfig Random(std::mt19937_64& random) {
  const auto below = [&](std::uint64_t n) { return static_cast<int>(random() % n); };
  StageConfig config = Example();
  config.id = "abc";
  for (const KeySpec& key : AllKeys()) {
    if (key.type == KeyType::kText && !key.choices.empty()) {
      SetField(key, key.choices[static_cast<std::size_t>(below(key.choices.size()))], config);
    } else if (key.type == KeyType::kNumber) {
      const double high = std::min(key.range.high, 1.0);
      SetField(key, high * (1 + below(1 << 20)) / (2 + (1 << 20)), config);
    } else if (key.type == KeyType::kBoolean) {
      SetField(key, below(2) == 1, config);
    } else if (key.type == KeyType::kInteger) {
      SetField(key, static_cast<std::int64_t>(key.range.low) + below(500), config);
    }
  }
  config.model.embed = 2 * (1 + below(200));
  config.model.heads.clear();
  for (int layer = 0; layer < config.model.layers; ++layer) config.model.heads.push_back(below(9));
  config.model.heads.back() = 1 + below(8);
  config.train.warmup_steps = below(static_cast<std::uint64_t>(config.train.steps));
  config.train.micro_batch = 0;
  config.run.devices = 1;
  config.seed = random() >> 1;
  config.task.corpus = "odd \"name\" \\ \t\x01 ünïcødé 漢字 #[x]";
  if (below(2) == 1) {
    config.kind = StageKind::kPrune;
    config.parent = "p";
  } else {
    config.prune = PruneConfig{};
  }
  return config;
}

TEST(StageConfig, ConfigTomlReadsBackEqual) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 300; ++i) {
    const StageConfig config = Random(random);
    const std::string text = FormatStageConfig(config);
    const StageConfig back = ParseStageConfig(text, "config.toml");
    ASSERT_EQ(FormatStageConfig(back), text);
    ASSERT_EQ(CanonicalJson(back), CanonicalJson(config)) << text;
    for (const KeySpec& key : AllKeys()) ASSERT_EQ(GetField(key, back), GetField(key, config)) << key.name;
    ASSERT_EQ(back.kind, config.kind);
    ASSERT_EQ(back.id, config.id);
    ASSERT_EQ(back.parent, config.parent);
  }
}

std::string ErrorOf(const std::string& text) {
  try {
    ParseStageConfig(text, "trial.toml");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(StageConfig, ComplaintsNameFileLineColumnAndTheNearestKey) {
  EXPECT_EQ(ErrorOf("kind = \"tran\"\n[model]\nhaeds = 4\nembed = 4.5\n"),
            "trial.toml:1:8: kind must be \"train\" or \"prune\", not \"tran\"\n"
            "trial.toml:3:1: unknown key \"model.haeds\"; did you mean \"model.heads\"?\n"
            "trial.toml:4:9: model.embed must be a whole number, not 4.5");
}

TEST(StageConfig, AHeadSizeThatIsNotWholeIsExplainedWithItsValues) {
  EXPECT_EQ(
      ErrorOf("[model]\nembed = 128\nheads = 3\n"),
      "trial.toml:3:9: model.head_size = \"embed / heads\" is 42.666666666666664, not a whole number with "
      "model.embed = 128, model.heads = 3");
}

struct BadValue {
  const char* text;
  const char* part;
};

TEST(StageConfig, EveryCrossCheckComplains) {
  const BadValue cases[] = {
      {"[train]\nsteps = 10\nwarmup_steps = 11\n", "warmup_steps = 11 is more than train.steps = 10"},
      {"[train]\nbatch = 10\nmicro_batch = 4\n", "is no multiple of train.micro_batch"},
      {"[model]\nheads = 0\nhead_size = 8\n", "at least one layer must have a head"},
      {"[model]\nheads = [1, 2, 3]\nhead_size = 8\n", "lists 3 layers, but model.layers = 2"},
      {"[model]\nheads = [1, 2]\n", "differs from layer to layer"},
      {"[model]\nheads = 0\n", "not a finite number"},
      {"[model]\nhead_size = 513\n", "out of range: 1 to 512"},
      {"[model]\nhead_size = 0\n", "out of range"},
      {"[model]\ndropout = 1\n", "out of range: 0 to below 1"},
      {"[model]\ndropout = nan\n", "finite"},
      {"[task]\nlength = 1\n", "out of range"},
      {"[task]\nkind = \"span\"\n", "not available in this version"},
      {"[task]\nkind = \"langage-model\"\n", "did you mean \"language-model\"?"},
      {"[model]\npositions = \"sinusoidal\"\nembed = 5\nheads = 1\n", "even model.embed"},
      {"[run]\ndevices = 17\n", "cannot be shared out"},
      {"[model]\nembed = \"head_size * 2\"\n", "these expressions need each other"},
      {"[model]\nembed = \"heads * \"\n", "model.embed"},
      {"[model]\ntied = \"true\"\n", "without quotes"},
      {"[model]\nembed = [1, 2]\n", "put it under [grid]"},
      {"seed = -1\n", "out of range"},
      {"seed = 1979-05-27\n", "not a date or time"},
      {"kind = \"prune\"\n", "needs prune.order"},
      {"model = 3\n", "must be a section"},
      {"[model]\nheads = []\n", "empty list"},
      {"[model\n", "trial.toml:1:"},
  };
  for (const BadValue& bad : cases) EXPECT_THAT(ErrorOf(bad.text), HasSubstr(bad.part)) << bad.text;
}

}  // namespace
}  // namespace headsweep
