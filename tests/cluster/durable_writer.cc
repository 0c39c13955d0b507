// durable_writer DIRECTORY: replaces DIRECTORY/file, seals DIRECTORY/tree and appends to DIRECTORY/log, for
// tests that end it in between (HEADSWEEP_CRASH_AT).
#include <cstdio>
#include <exception>

#include "cluster/base/file_system.h"

int main(int argc, char** argv) {
  using namespace headsweep;
  if (argc != 2) return 2;
  try {
    const std::string directory = argv[1];
    FileSystem& files = FileSystem::Real();
    WriteFileDurably(files, directory + "/file", "new");
    files.CreateDirectories(directory + "/tree.tmp");
    files.WriteFile(directory + "/tree.tmp/a", "a");
    files.WriteFile(directory + "/tree.tmp/b", "b");
    SealInPlace(files, directory + "/tree.tmp", directory + "/tree");
    const auto log = files.OpenForAppend(directory + "/log");
    log->Append("one\n");
    log->Sync();
    log->Append("two\n");
    log->Sync();
    files.Remove(directory + "/old");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
