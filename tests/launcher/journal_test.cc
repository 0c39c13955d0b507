#include "launcher/journal.h"

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

JournalEvent Checkpointed(int step) {
  JournalEvent event;
  event.type = journal::kCheckpointed;
  event.stage = "00ff";
  event.attempt = 1;
  event.time = 1700000000.25;
  event.fields["step"] = std::to_string(step);
  return event;
}

TEST(Journal, ReadsBackWhatWasAppended) {
  testing::TempDir folder;
  const std::string path = folder / "journal.jsonl";
  const SystemClock clock;
  {
    Journal journal(FileSystem::Real(), path, clock);
    journal.Append({Checkpointed(1), Checkpointed(2)});
    journal.Append({Checkpointed(3)});
  }
  const JournalHistory history = ReadJournal(FileSystem::Real(), path);
  EXPECT_EQ(history.events, (std::vector{Checkpointed(1), Checkpointed(2), Checkpointed(3)}));
  EXPECT_FALSE(history.torn);
}

}  // namespace
}  // namespace headsweep
