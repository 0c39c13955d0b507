// What survives a power cut: every durable protocol of headsweep, cut off before every operation, on every
// disk that may be found afterwards. The protocols that people get wrong are here too, as mutants: each must
// lose something.
#include <gtest/gtest.h>

#include <functional>

#include "cluster/base/clock.h"
#include "launcher/journal.h"
#include "tests/support/crash_disk.h"

namespace headsweep {
namespace {

using testing::CrashDisk;
using testing::Crashed;

const std::string kOld(40, 'o'), kNew(50, 'n');

class StoppedClock final : public Clock {
 public:
  double Monotonic() const override { return 1; }
  double Wall() const override { return 1700000000; }
};

// Cuts `protocol` off before its first, second, … operation until it runs through, and shows `judge` every
// disk that may be left. The number of disks seen.
int ForEveryCrash(const std::function<void(CrashDisk&)>& set_up,
                  const std::function<void(CrashDisk&)>& protocol,
                  const std::function<void(CrashDisk& after, bool completed)>& judge) {
  int worlds = 0;
  for (int operation = 1;; ++operation) {
    CrashDisk disk;
    set_up(disk);
    disk.SyncEverything();
    disk.CrashBefore(operation);
    bool completed = false;
    try {
      protocol(disk);
      completed = true;
    } catch (const Crashed&) {
    }
    disk.CrashBefore(0);
    disk.ForEachWorld([&](CrashDisk& after) {
      ++worlds;
      judge(after, completed);
    });
    if (completed) return worlds;
    if (operation > 1000) ADD_FAILURE() << "the protocol does not end";
    if (operation > 1000) return worlds;
  }
}

// --- Files and directories
// ------------------------------------------------------------------------------------------------

TEST(SealCrash, AFileWrittenDurablyIsOldOrNewAndNeverTorn) {
  for (const bool replaces : {false, true}) {
    const int worlds = ForEveryCrash(
        [&](CrashDisk& disk) {
          disk.CreateDirectories("d");
          if (replaces) disk.WriteFile("d/state", kOld);
        },
        [](CrashDisk& disk) { WriteFileDurably(disk, "d/state", kNew); },
        [&](CrashDisk& after, bool completed) {
          if (completed) {
            ASSERT_EQ(after.ReadFile("d/state"), kNew);
          } else if (replaces) {
            ASSERT_TRUE(after.ReadFile("d/state") == kOld || after.ReadFile("d/state") == kNew);
          } else if (after.Exists("d/state")) {
            ASSERT_EQ(after.ReadFile("d/state"), kNew);
          }
        });
    EXPECT_GT(worlds, 10);
  }
}

const std::vector<std::string> kParts = {"optimiser", "state", "weights"};

TEST(SealCrash, ASealedDirectoryIsWholeOrAbsent) {
  ForEveryCrash([](CrashDisk& disk) { disk.CreateDirectories("d"); },
                [](CrashDisk& disk) {
                  disk.CreateDirectories("d/tmp");
                  for (const std::string& part : kParts) disk.WriteFile("d/tmp/" + part, kNew + part);
                  SealInPlace(disk, "d/tmp", "d/step-100");
                },
                [](CrashDisk& after, bool completed) {
                  ASSERT_TRUE(after.IsDirectory("d/step-100") || !completed);
                  if (!after.IsDirectory("d/step-100")) return;
                  ASSERT_EQ(after.List("d/step-100"), kParts);
                  for (const std::string& part : kParts)
                    ASSERT_EQ(after.ReadFile("d/step-100/" + part), kNew + part);
                });
}

// --- The journal
// ----------------------------------------------------------------------------------------------------------

JournalEvent Event(int number) {
  JournalEvent event;
  event.type = journal::kCheckpointed;
  event.time = 1700000000;
  event.stage = "stage";
  event.attempt = 1;
  event.fields["step"] = std::to_string(number);
  return event;
}

TEST(SealCrash, TheJournalKeepsWhatWasAppendedAndGoesOn) {
  const StoppedClock clock;
  int returned = 0;  // events of appends that came back
  ForEveryCrash([](CrashDisk& disk) { disk.CreateDirectories("d"); },
                [&](CrashDisk& disk) {
                  returned = 0;
                  Journal journal(disk, "d/journal", clock);
                  for (const int batch : {1, 3, 2}) {
                    std::vector<JournalEvent> events;
                    for (int i = 0; i < batch; ++i) events.push_back(Event(returned + i));
                    journal.Append(events);
                    returned += batch;
                  }
                },
                [&](CrashDisk& after, bool) {
                  std::vector<JournalEvent> found = ReadJournal(after, "d/journal").events;
                  ASSERT_GE(static_cast<int>(found.size()), returned) << "an acknowledged event is lost";
                  for (int i = 0; i < static_cast<int>(found.size()); ++i)
                    ASSERT_EQ(found[static_cast<std::size_t>(i)], Event(i));
                  // The next launcher opens it, cuts the torn tail off, and appends.
                  { Journal(after, "d/journal", clock).Append({Event(99)}); }
                  found.push_back(Event(99));
                  const JournalHistory history = ReadJournal(after, "d/journal");
                  ASSERT_EQ(history.events, found);
                  ASSERT_FALSE(history.torn);
                });
}

// A launcher that is killed while it repairs what the one before left behind.
TEST(SealCrash, TheJournalSurvivesACrashDuringItsRepair) {
  const StoppedClock clock;
  const std::string line = FormatJournalLine(Event(0));
  ForEveryCrash([&](CrashDisk& disk) { disk.WriteFile("journal", line + line.substr(0, line.size() / 2)); },
                [&](CrashDisk& disk) {
                  Journal(disk, "journal", clock).Append({Event(1), Event(2)});
                },
                [&](CrashDisk& after, bool completed) {
                  const std::vector<JournalEvent> found = ReadJournal(after, "journal").events;
                  ASSERT_GE(found.size(), completed ? 3u : 1u);
                  for (std::size_t i = 0; i < found.size(); ++i)
                    ASSERT_EQ(found[i], Event(static_cast<int>(i)));
                });
}

// --- A result, from the trainer to the acknowledgement
// --------------------------------------------------------------------

JournalEvent Says(const char* outcome) {
  JournalEvent event = Event(0);
  event.type = journal::kAttemptEnded;
  event.fields = {{"outcome", outcome}};
  return event;
}

struct Protocol {
  const char* name;
  bool right;
  std::function<void(CrashDisk&, bool& acknowledged)> run;
};

void Record(CrashDisk& disk, const JournalEvent& event) {
  Journal(disk, "d/journal", StoppedClock()).Append({event});
}

const Protocol kProtocols[] = {
    {"TheRealOne", true,
     [](CrashDisk& disk, bool& acknowledged) {
       disk.WriteFile("d/tmp", kNew);
       SealInPlace(disk, "d/tmp", "d/result");
       Record(disk, Says("finished"));
       acknowledged = true;
     }},
    {"RenameBeforeFsync", false,
     [](CrashDisk& disk, bool& acknowledged) {
       disk.WriteFile("d/tmp", kNew);
       disk.Rename("d/tmp", "d/result");
       disk.SyncFile("d/result");
       disk.SyncDirectory("d");
       Record(disk, Says("finished"));
       acknowledged = true;
     }},
    {"NoFsyncAtAll", false,
     [](CrashDisk& disk, bool& acknowledged) {
       disk.WriteFile("d/tmp", kNew);
       disk.Rename("d/tmp", "d/result");
       disk.SyncDirectory("d");
       Record(disk, Says("finished"));
       acknowledged = true;
     }},
    {"NoSyncOfTheDirectory", false,
     [](CrashDisk& disk, bool& acknowledged) {
       disk.WriteFile("d/tmp", kNew);
       disk.SyncFile("d/tmp");
       disk.Rename("d/tmp", "d/result");
       disk.OpenForAppend("d/journal")->Append(FormatJournalLine(Says("finished")));
       disk.SyncFile("d/journal");
       acknowledged = true;
     }},
    {"JournalBeforeTheSeal", false,
     [](CrashDisk& disk, bool& acknowledged) {
       disk.WriteFile("d/tmp", kNew);
       Record(disk, Says("finished"));
       SealInPlace(disk, "d/tmp", "d/result");
       acknowledged = true;
     }},
    {"AcknowledgeBeforeTheJournalIsSynced", false,
     [](CrashDisk& disk, bool& acknowledged) {
       disk.WriteFile("d/tmp", kNew);
       SealInPlace(disk, "d/tmp", "d/result");
       const auto file = disk.OpenForAppend("d/journal");
       file->Append(FormatJournalLine(Says("finished")));
       acknowledged = true;
       file->Sync();
     }},
    {"WrittenInPlace", false,
     [](CrashDisk& disk, bool& acknowledged) {
       disk.WriteFile("d/result", kNew);
       disk.SyncFile("d/result");
       disk.SyncDirectory("d");
       Record(disk, Says("finished"));
       acknowledged = true;
     }},
};

class SealProtocol : public ::testing::TestWithParam<Protocol> {};

TEST_P(SealProtocol, KeepsItsPromisesExactlyIfItIsTheRealOne) {
  bool acknowledged = false;
  int violations = 0;
  const int worlds = ForEveryCrash(
      [](CrashDisk& disk) {
        disk.CreateDirectories("d");
        disk.WriteFile("d/journal", "");
      },
      [&](CrashDisk& disk) {
        acknowledged = false;
        GetParam().run(disk, acknowledged);
      },
      [&](CrashDisk& after, bool) {
        const bool recorded = !ReadJournal(after, "d/journal").events.empty();
        const bool there = after.Exists("d/result"), whole = there && after.ReadFile("d/result") == kNew;
        if (there && !whole) ++violations;            // a torn file under the final name
        if (recorded && !whole) ++violations;         // the journal promises what is not there
        if (acknowledged && !recorded) ++violations;  // somebody was told what is forgotten
      });
  std::printf("  %d of %d disks break a promise\n", violations, worlds);
  RecordProperty("worlds", worlds);
  RecordProperty("violations", violations);
  EXPECT_EQ(violations == 0, GetParam().right) << violations << " of " << worlds;
}

INSTANTIATE_TEST_SUITE_P(SealCrash, SealProtocol, ::testing::ValuesIn(kProtocols),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

// --- A deletion
// -----------------------------------------------------------------------------------------------------------

const Protocol kDeletions[] = {
    {"TheRealOne", true,
     [](CrashDisk& disk, bool&) {
       Record(disk, Says("dropped"));
       disk.Remove("d/result");
     }},
    {"DataBeforeItsRecord", false,
     [](CrashDisk& disk, bool&) {
       disk.Remove("d/result");
       Record(disk, Says("dropped"));
     }},
};

class DeleteProtocol : public ::testing::TestWithParam<Protocol> {};

TEST_P(DeleteProtocol, KeepsItsPromisesExactlyIfItIsTheRealOne) {
  int violations = 0;
  const int worlds = ForEveryCrash(
      [](CrashDisk& disk) {
        disk.CreateDirectories("d");
        disk.WriteFile("d/result", kNew);
        Record(disk, Says("finished"));
      },
      [&](CrashDisk& disk) {
        bool unused = false;
        GetParam().run(disk, unused);
      },
      [&](CrashDisk& after, bool) {
        const bool dropped = ReadJournal(after, "d/journal").events.back() == Says("dropped");
        if (!after.Exists("d/result") && !dropped) ++violations;
      });
  EXPECT_EQ(violations == 0, GetParam().right) << violations << " of " << worlds;
}

INSTANTIATE_TEST_SUITE_P(SealCrash, DeleteProtocol, ::testing::ValuesIn(kDeletions),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

void PrintTo(const Protocol& protocol, std::ostream* out) { *out << protocol.name; }

// --- The disk itself
// ------------------------------------------------------------------------------------------------------

TEST(CrashDisk, ForgetsAtMostWhatWasNotSynced) {
  CrashDisk disk;
  disk.WriteFile("a", "synced");
  disk.SyncFile("a");
  int without_name = 0, with_name = 0;
  disk.ForEachWorld([&](CrashDisk& after) {
    ++(after.Exists("a") ? with_name : without_name);
    if (after.Exists("a")) {
      EXPECT_EQ(after.ReadFile("a"), "synced");
    }
  });
  EXPECT_EQ(without_name, 1);
  EXPECT_EQ(with_name, 1);
  disk.SyncDirectory(".");
  disk.WriteFile("a", "other");
  std::vector<std::string> found;
  disk.ForEachWorld([&](CrashDisk& after) { found.push_back(after.ReadFile("a")); });
  EXPECT_EQ(found,
            (std::vector<std::string>{"synced", "other", "o", "ot", "othe", std::string("\0\0her", 5), ""}));
}

TEST(CrashDisk, StandsForTheRealFileSystemWithoutACrash) {
  CrashDisk disk;
  disk.CreateDirectories("x/y");
  disk.WriteFile("x/y/a", "1");
  disk.Rename("x/y/a", "x/b");
  EXPECT_EQ(disk.List("x"), (std::vector<std::string>{"b", "y"}));
  EXPECT_TRUE(disk.IsDirectory("x/y"));
  EXPECT_EQ(disk.ReadFile("./x//b"), "1");
  EXPECT_EQ(disk.FileSize("x/b"), 1);
  EXPECT_THROW(disk.ReadFile("x/nothing"), IoError);
  EXPECT_THROW(disk.WriteFile("z/a", ""), IoError);
  EXPECT_THROW(disk.SyncDirectory("x/b"), IoError);
  disk.RemoveAll("x");
  EXPECT_FALSE(disk.Exists("x"));
  disk.Remove("x");
}

}  // namespace
}  // namespace headsweep
