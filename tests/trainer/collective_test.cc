// Collectives between real processes: sums, order, bits, and what a peer's death or silence looks like.
#include "trainer/collective.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "cluster/base/hash.h"
#include "tests/support/temp_dir.h"
#include "tests/trainer/ranks.h"
#include "trainer/bfloat16.h"
#include "trainer/collective_network.h"
#include "trainer/rendezvous.h"

namespace headsweep {
namespace {

using testing::Ranks;

// A collective of this process and those that use the same folder. The rendezvous lives as long.
struct Joined {
  Joined(const std::string& folder, int rank, int world_size, double timeout = 30, Wire wire = Wire::kFloat32)
      : rendezvous(MakeFileRendezvous(FileSystem::Real(), folder)),
        collective(MakeGlooCollective(
            {.rank = rank, .world_size = world_size, .timeout_seconds = timeout, .wire = wire},
            *rendezvous)) {}
  std::unique_ptr<Rendezvous> rendezvous;
  std::unique_ptr<Collective> collective;
};

std::vector<float> RandomValues(int rank, std::int64_t count) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) * 1000 + static_cast<std::uint64_t>(count));
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

std::string Bits(const std::vector<float>& values) {
  return ChecksumHex({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}

class WorldTest : public ::testing::TestWithParam<int> {
 protected:
  testing::TempDir temp_;
};

TEST_P(WorldTest, SumsAreRightAndTheSameBitsOnEveryRankAndEveryTime) {
  const int n = GetParam();
  const std::vector<std::int64_t> counts = {1, 3, 1000, 16383, 16384, 100003};
  const auto body = [&](const std::string& folder) {
    return [&, folder](int rank) -> std::string {
      Joined joined(folder, rank, n);
      std::vector<std::vector<float>> values;
      for (const std::int64_t count : counts) values.push_back(RandomValues(rank, count));
      for (auto& v : values) joined.collective->AllReduceSum(v.data(), static_cast<std::int64_t>(v.size()));
      joined.collective->Wait();
      std::string text;
      for (std::size_t i = 0; i < values.size(); ++i) {
        std::vector<double> expected(values[i].size());
        for (int r = 0; r < n; ++r) {
          const std::vector<float> theirs = RandomValues(r, counts[i]);
          for (std::size_t j = 0; j < theirs.size(); ++j) expected[j] += theirs[j];
        }
        double worst = 0;
        for (std::size_t j = 0; j < expected.size(); ++j)
          worst = std::max(worst, std::abs(values[i][j] - expected[j]));
        if (!(worst <= 1e-5)) throw std::runtime_error(fmt::format("{} values: off by {}", counts[i], worst));
        text += Bits(values[i]) + " ";
      }
      return text;
    };
  };
  const std::vector<std::string> first = Ranks(n, body(temp_ / "a")).Texts();
  const std::vector<std::string> again = Ranks(n, body(temp_ / "b")).Texts();
  for (const std::string& text : first) EXPECT_EQ(text, first.front());
  EXPECT_EQ(first.front().find("error"), std::string::npos) << first.front();
  EXPECT_EQ(again, first);
}

TEST_P(WorldTest, HostValuesBroadcastGatherShardsAndBarrier) {
  const int n = GetParam();
  Ranks ranks(n, [&](int rank) -> std::string {
    Joined joined(temp_ / "meet", rank, n);
    Collective& collective = *joined.collective;
    std::vector<double> sums = {1, rank * 0.5, -1e300};
    collective.AllReduceSum(sums.data(), 3);
    if (sums[0] != n || sums[1] != 0.25 * n * (n - 1)) return "host sums are wrong";
    char text[6] = "-----";
    const int root = n - 1;
    if (rank == root) std::copy_n("hello", 5, text);
    collective.Broadcast(text, 5, root);
    if (std::string(text) != "hello") return "broadcast is wrong";
    const std::vector<std::string> gathered =
        collective.AllGather(std::string(static_cast<std::size_t>(rank * 3), 'a' + rank));
    for (int r = 0; r < n; ++r)
      if (gathered.at(static_cast<std::size_t>(r)) != std::string(static_cast<std::size_t>(r * 3), 'a' + r))
        return "gather is wrong";
    for (const std::int64_t count : {1, 2, 5, 1001}) {
      std::vector<float> values(static_cast<std::size_t>(count), -1);
      const auto [begin, end] = ShardOf(count, rank, n);
      for (std::int64_t i = begin; i < end; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i);
      collective.AllGatherShards(values.data(), count, sizeof(float));
      for (std::int64_t i = 0; i < count; ++i)
        if (values[static_cast<std::size_t>(i)] != static_cast<float>(i))
          return fmt::format("shard value {} of {} is wrong", i, count);
    }
    collective.Barrier();
    return "good";
  });
  for (const std::string& text : ranks.Texts()) EXPECT_EQ(text, "good");
}

TEST_P(WorldTest, SumsRoundedToBfloat16StayWithinItsError) {
  const int n = GetParam();
  Ranks ranks(n, [&](int rank) -> std::string {
    Joined joined(temp_ / "meet", rank, n, 30, Wire::kBfloat16);
    std::vector<float> values = RandomValues(rank, 5003);
    joined.collective->AllReduceSum(values.data(), 5003);
    joined.collective->Wait();
    std::vector<double> sum(values.size()), magnitude(values.size());
    for (int r = 0; r < n; ++r) {
      const std::vector<float> theirs = RandomValues(r, 5003);
      for (std::size_t i = 0; i < theirs.size(); ++i)
        sum[i] += theirs[i], magnitude[i] += std::abs(theirs[i]);
    }
    for (std::size_t i = 0; i < sum.size(); ++i)  // each of n roundings is at most 2^-8 of a partial sum
      if (!(std::abs(values[i] - sum[i]) <= n * magnitude[i] / 255)) return fmt::format("value {} is off", i);
    return Bits(values);
  });
  const std::vector<std::string> texts = ranks.Texts();
  for (const std::string& text : texts) EXPECT_EQ(text, texts.front());
  EXPECT_EQ(texts.front().size(), Bits({}).size()) << texts.front();
}

INSTANTIATE_TEST_SUITE_P(Sizes, WorldTest, ::testing::Values(2, 3, 4));

class CollectiveFailureTest : public ::testing::Test {
 protected:
  // Rank 0's account of a peer that was sent this signal while both exchange without end.
  std::string WithPeerSignalled(int signal, double timeout) {
    Ranks ranks(3, [&](int rank) -> std::string {
      Joined joined(temp_ / "meet", rank, 3, timeout);
      std::vector<float> values(200000, 1);
      const SystemClock clock;
      try {
        for (int round = 0;; ++round) {
          joined.collective->AllReduceSum(values.data(), 200000);
          joined.collective->Wait();
          if (round == 3) std::ofstream(temp_ / fmt::format("ready-{}", rank)) << "yes";
        }
      } catch (const CommError& error) {
        std::string later;
        try {
          joined.collective->Barrier();
        } catch (const CommError& again) {
          later = again.what();
        }
        return fmt::format("{}|{}|{}", error.elapsed_seconds(), error.what(),
                           later == error.what() ? "dead" : later);
      }
    });
    const SystemClock clock;
    const double started = clock.Monotonic();
    while (clock.Monotonic() < started + 60 &&
           !(std::filesystem::exists(temp_ / "ready-0") && std::filesystem::exists(temp_ / "ready-1") &&
             std::filesystem::exists(temp_ / "ready-2")))
      ::usleep(2000);
    ranks.Signal(1, signal);
    const double sent = clock.Monotonic();
    const std::string first = ranks.Text(0), second = ranks.Text(2);
    seconds_ = clock.Monotonic() - sent;
    EXPECT_NE(second.find("|dead"), std::string::npos) << second;
    return first;
  }
  testing::TempDir temp_;
  double seconds_ = 0;
};

TEST_F(CollectiveFailureTest, ADeadPeerIsNoticedAtOnceAndTheCollectiveIsDeadAfterwards) {
  const std::string told = WithPeerSignalled(SIGKILL, 30);
  EXPECT_NE(told.find("all-reduce"), std::string::npos) << told;
  EXPECT_NE(told.find("rank 0 of 3"), std::string::npos) << told;
  EXPECT_NE(told.find("|dead"), std::string::npos) << told;
  EXPECT_LT(seconds_, 10) << "the timeout is 30 s: nobody may wait for it";
}

TEST_F(CollectiveFailureTest, AFrozenPeerIsNoticedAfterTheTimeout) {
  const std::string told = WithPeerSignalled(SIGSTOP, 1.5);
  EXPECT_NE(told.find("all-reduce"), std::string::npos) << told;
  EXPECT_GT(seconds_, 1.0);
  EXPECT_LT(seconds_, 15);
}

TEST_F(CollectiveFailureTest, AMissingRankEndsTheMeeting) {
  try {
    Joined(temp_ / "meet", 0, 2, 0.3);
    FAIL() << "rank 1 never came";
  } catch (const CommError& error) {
    EXPECT_NE(std::string(error.what()).find("place.1"), std::string::npos) << error.what();
  }
}

TEST_F(CollectiveFailureTest, AUsedFolderIsRefused) {
  Ranks(2, [&](int rank) -> std::string { return Joined(temp_ / "meet", rank, 2), ""; }).Texts();
  EXPECT_THROW(Joined(temp_ / "meet", 0, 2, 1), ConfigError);
}

TEST(TcpRendezvous, KeysTravelAndRankZeroMayComeLast) {
  const int port = 20000 + ::getpid() % 20000;
  Ranks ranks(3, [&](int rank) -> std::string {
    if (rank == 0) ::usleep(100000);
    const auto rendezvous = MakeTcpRendezvous(rank, "127.0.0.1", port, 20);
    rendezvous->Set(fmt::format("k{}", rank), fmt::format("value \"{}\"\n", rank));
    std::string all;
    for (int r = 2; r >= 0; --r) all += rendezvous->Get(fmt::format("k{}", r), 20);
    rendezvous->Set(fmt::format("done{}", rank), "");
    if (rank == 0) rendezvous->Get("done1", 20), rendezvous->Get("done2", 20);
    return all;
  });
  for (const std::string& text : ranks.Texts()) EXPECT_EQ(text, "value \"2\"\nvalue \"1\"\nvalue \"0\"\n");
}

TEST(TcpRendezvous, WhatGoesWrongIsSaid) {
  const int port = 20000 + ::getpid() % 20000;
  EXPECT_THROW(MakeTcpRendezvous(1, "127.0.0.1", port, 0.1), CommError);  // nobody listens
  const auto rendezvous = MakeTcpRendezvous(0, "127.0.0.1", port, 1);
  EXPECT_THROW(MakeTcpRendezvous(0, "127.0.0.1", port, 1), CommError);  // taken
  EXPECT_THROW(rendezvous->Get("never", 0.05), CommError);
  EXPECT_THROW(MakeTcpRendezvous(0, "192.0.2.1", port, 1), CommError);  // not of this machine
}

// Sockets of this process that listen: their local addresses, as /proc/net/tcp writes them.
std::vector<std::string> ListeningAddresses() {
  std::vector<std::string> inodes, addresses;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (target.starts_with("socket:[")) inodes.push_back(target.substr(8, target.size() - 9));
  }
  for (const char* file : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream table(file);
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
      std::istringstream fields(line);
      std::vector<std::string> words;
      for (std::string word; fields >> word;) words.push_back(word);
      if (words.size() > 9 && words[3] == "0A" &&
          std::find(inodes.begin(), inodes.end(), words[9]) != inodes.end())
        addresses.push_back(words[1].substr(0, words[1].find(':')));
    }
  }
  return addresses;
}

// Looks at the listening sockets at the moment at which Gloo has told its addresses and waits for the
// others'.
class Spy final : public Rendezvous {
 public:
  explicit Spy(Rendezvous& next) : next_(next) {}
  void Set(const std::string& key, const std::string& value) override { next_.Set(key, value); }
  std::string Get(const std::string& key, double timeout_seconds) override {
    if (key.starts_with("gloo."))
      for (const std::string& address : ListeningAddresses()) seen += address + " ";
    return next_.Get(key, timeout_seconds);
  }
  std::string seen;

 private:
  Rendezvous& next_;
};

TEST_F(CollectiveFailureTest, WithinOneMachineNothingListensBeyondTheLoopback) {
  const int port = 20000 + ::getpid() % 20000;
  Ranks ranks(2, [&](int rank) -> std::string {
    const auto rendezvous = MakeTcpRendezvous(rank, "127.0.0.1", port, 20);
    Spy spy(*rendezvous);
    const auto collective = MakeGlooCollective({.rank = rank, .world_size = 2}, spy);
    collective->Barrier();
    return spy.seen;
  });
  for (const std::string& text : ranks.Texts()) {
    ASSERT_FALSE(text.empty());
    std::istringstream words(text);
    for (std::string word; words >> word;) EXPECT_EQ(word, "0100007F") << "not 127.0.0.1";
  }
}

TEST(Network, LoopbackWithinAMachineAndTheCommonNetworkBetweenThem) {
  const Place a{"a",
                "host-a",
                {{"ib0", "10.9.0.1", 16, 100000},
                 {"docker0", "172.17.0.1", 16, 10000},
                 {"eth0", "192.168.1.5", 24, 1000}}};
  const Place b{"b", "host-b", {{"docker0", "172.17.0.1", 16, 10000}, {"eno1", "192.168.1.6", 24, 1000}}};
  const Place c{"c", "host-c", {{"ib1", "10.9.200.3", 16, 100000}, {"eth0", "192.168.1.7", 24, 1000}}};
  EXPECT_EQ(ChooseInterface({a, a}, 1).address, "127.0.0.1");
  EXPECT_EQ(ChooseInterface({a, c}, 0).address, "10.9.0.1");
  EXPECT_EQ(ChooseInterface({a, c}, 1).address, "10.9.200.3");
  EXPECT_EQ(ChooseInterface({a, b}, 0).address, "192.168.1.5") << "docker0 is no common network";
  EXPECT_EQ(ChooseInterface({a, a, b, c}, 2).address, "192.168.1.6");
  const Place lonely{"d", "host-d", {}};
  EXPECT_THROW(ChooseInterface({a, lonely}, 1), ConfigError);
  const Place here = DescribePlace();
  EXPECT_EQ(FormatPlace(ParsePlace(FormatPlace(here))), FormatPlace(here));
  EXPECT_THROW(ParsePlace("{}"), ConfigError);
}

TEST(Bfloat16, RoundsToNearestEvenAndKeepsWhatItCanHold) {
  for (const float value : {0.0f, -0.0f, 1.0f, -2.5f, 3.3895314e38f})
    EXPECT_EQ(FromBfloat16(ToBfloat16(value)), value);
  EXPECT_EQ(FromBfloat16(ToBfloat16(1.00390625f)), 1.0f) << "a tie goes to even";
  EXPECT_EQ(FromBfloat16(ToBfloat16(1.01171875f)), 1.015625f) << "a tie goes to even";
  EXPECT_TRUE(std::isnan(FromBfloat16(ToBfloat16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isinf(FromBfloat16(ToBfloat16(INFINITY))));
}

}  // namespace
}  // namespace headsweep
