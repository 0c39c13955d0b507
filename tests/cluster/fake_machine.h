// Another machine, shown by files under a directory and programs on a PATH of its own.
#pragma once

#include <sys/stat.h>

#include <map>
#include <string>

#include "cluster/base/file_system.h"
#include "cluster/topology.h"
#include "tests/cluster/environment.h"
#include "tests/support/temp_dir.h"

namespace headsweep::testing {

class FakeMachine {
 public:
  FakeMachine() {
    FileSystem::Real().CreateDirectories(dir_ / "bin");
    FileSystem::Real().CreateDirectories(root() + "/dev");
  }
  std::string root() const { return dir_ / "root"; }
  std::string operator/(const std::string& name) const { return dir_ / name; }

  void File(const std::string& path, const std::string& text) {
    FileSystem::Real().CreateDirectories(ParentPath(root() + path));
    FileSystem::Real().WriteFile(root() + path, text);
  }
  // body: lines of sh (built-in commands only, as PATH shows nothing else).
  void Program(const std::string& name, const std::string& body) {
    FileSystem::Real().WriteFile(dir_ / ("bin/" + name), "#!/bin/sh\n" + body + "\n");
    ::chmod((dir_ / ("bin/" + name)).c_str(), 0755);
  }
  void Set(const std::string& name, const std::string& value) { environment_[name] = value; }

  TopologySources Sources(const std::string& synthetic = "numa:1 core:4 pu:2") const {
    TopologySources sources;
    sources.root = root();
    sources.synthetic = synthetic;
    sources.environment = [this](const char* name) -> const char* {
      const auto it = environment_.find(name);
      return it == environment_.end() ? nullptr : it->second.c_str();
    };
    sources.program_seconds = 10;
    return sources;
  }

 private:
  TempDir dir_;
  std::map<std::string, std::string> environment_;
  ScopedVariable path_{"PATH", (dir_ / "bin").c_str()};
};

}  // namespace headsweep::testing
