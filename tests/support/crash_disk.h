// CrashDisk: a FileSystem in memory that remembers what was synced, and forgets the rest at a simulated power
// cut.
//
//   CrashDisk disk; ...set-up...; disk.SyncEverything();
//   disk.CrashBefore(n);            // the n-th changing operation from now throws Crashed instead of
//   happening try { protocol(disk); } catch (const Crashed&) {} disk.ForEachWorld([&](CrashDisk& after) { ...
//   });   // every disk that a power cut at this moment may leave behind
//
// The model is harsher than real disks, so that what survives here survives there:
//   - a file holds what it held at its last fsync, or what was written since, or a torn mixture: a prefix of
//   what was appended,
//     or appended blocks whose first part is zeros (its page was lost, a later one was written);
//   - every name of a directory that changed since the directory's last fsync is, independently, as before or
//   as after. One
//     rename is therefore two names, but a name never points at nothing in between;
//   - fsync of a file does not make its name durable.
// Directories made by CreateDirectories are durable, as its contract says.
#pragma once

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"

namespace headsweep::testing {

struct Crashed {};  // not a std::exception: no handler of errors may take a power cut for one

class CrashDisk final : public FileSystem {
 public:
  CrashDisk() : root_(MakeNode(true)) {}
  CrashDisk(const CrashDisk&) = delete;
  CrashDisk& operator=(const CrashDisk&) = delete;

  // --- the crash
  // ------------------------------------------------------------------------------------------------------------
  void CrashBefore(int operation) { left_ = operation; }  // 1: the next one
  void SyncEverything() {
    for (Node* node : AllNodes()) {
      Sync(*node);
      node->synced_names = node->names;
    }
  }

  // Calls visit with every disk that may be found after a power cut now. At most `limit`, evenly picked from
  // all.
  void ForEachWorld(const std::function<void(CrashDisk&)>& visit, std::size_t limit = 4096) const {
    const std::vector<Choice> choices = Choices();
    std::size_t worlds = 1;
    for (const Choice& choice : choices) worlds *= choice.options;
    const std::size_t stride = worlds / limit + 1;
    for (std::size_t world = 0; world < worlds; world += stride) {
      CrashDisk after;
      std::map<const Node*, NodePtr> copies;
      after.root_ = Survivor(root_.get(), choices, world, copies);
      visit(after);
    }
  }

  // --- FileSystem
  // -----------------------------------------------------------------------------------------------------------
  std::string ReadFile(const std::string& path) const override { return File(path, "open").bytes; }
  bool Exists(const std::string& path) const override { return Find(path) != nullptr; }
  bool IsDirectory(const std::string& path) const override {
    const NodePtr node = Find(path);
    return node != nullptr && node->directory;
  }
  std::int64_t FileSize(const std::string& path) const override {
    return static_cast<std::int64_t>(File(path, "stat").bytes.size());
  }
  std::vector<std::string> List(const std::string& directory) const override {
    std::vector<std::string> names;
    if (const NodePtr node = Find(directory)) {
      for (const auto& [name, child] : node->names) names.push_back(name);
    }
    return names;
  }
  void CreateDirectories(const std::string& path) override {
    if (Exists(path) || path == "." || path.empty()) return;
    CreateDirectories(ParentPath(path));
    Operation();
    Node& parent = Directory(ParentPath(path), "mkdir");
    const NodePtr made = MakeNode(true);
    parent.names[BaseName(path)] = made;
    parent.synced_names[BaseName(path)] = made;
  }
  void WriteFile(const std::string& path, std::string_view bytes) override {
    Operation();
    NodePtr& node = Directory(ParentPath(path), "create").names[BaseName(path)];
    if (node == nullptr) node = MakeNode(false);
    node->bytes.clear();
    node->untouched = 0;
    Operation();  // created or emptied, but not yet written
    node->bytes = bytes;
  }
  std::unique_ptr<AppendFile> OpenForAppend(const std::string& path) override {
    if (!Exists(path)) {
      Operation();
      Directory(ParentPath(path), "create").names[BaseName(path)] = MakeNode(false);
    }
    return std::make_unique<Appender>(*this, Find(path));
  }
  void Truncate(const std::string& path, std::int64_t size) override {
    Operation();
    Node& file = File(path, "truncate");
    file.bytes.resize(static_cast<std::size_t>(size));
    file.untouched = std::min(file.untouched, file.bytes.size());
  }
  void SyncFile(const std::string& path) override {
    Operation();
    Sync(File(path, "fsync"));
  }
  void SyncDirectory(const std::string& path) override {
    Operation();
    Node& directory = Directory(path, "fsync");
    directory.synced_names = directory.names;
  }
  void Rename(const std::string& from, const std::string& to) override {
    Operation();
    const NodePtr node = Find(from);
    if (node == nullptr) throw IoError("rename", from, ENOENT);
    Directory(ParentPath(from), "rename").names.erase(BaseName(from));
    Directory(ParentPath(to), "rename").names[BaseName(to)] = node;
  }
  void Remove(const std::string& path) override {
    Operation();
    if (Exists(path)) Directory(ParentPath(path), "remove").names.erase(BaseName(path));
  }
  void RemoveAll(const std::string& path) override {  // one name after the other, like the real one
    if (IsDirectory(path)) {
      for (const std::string& name : List(path)) RemoveAll(JoinPath(path, name));
    }
    Remove(path);
  }

 private:
  struct Node {
    bool directory = false;
    std::string bytes, synced;
    std::size_t untouched = 0;  // so many bytes at the beginning were not written since the last fsync
    std::map<std::string, std::shared_ptr<Node>> names, synced_names;
  };
  using NodePtr = std::shared_ptr<Node>;

  class Appender final : public AppendFile {
   public:
    Appender(CrashDisk& disk, NodePtr file) : disk_(disk), file_(std::move(file)) {}
    void Append(std::string_view bytes) override {
      disk_.Operation();
      file_->bytes += bytes;
    }
    void Sync() override {
      disk_.Operation();
      CrashDisk::Sync(*file_);
    }
    std::int64_t size() const override { return static_cast<std::int64_t>(file_->bytes.size()); }

   private:
    CrashDisk& disk_;
    NodePtr file_;
  };

  static NodePtr MakeNode(bool directory) {
    auto node = std::make_shared<Node>();
    node->directory = directory;
    return node;
  }

  static void Sync(Node& file) {
    file.synced = file.bytes;
    file.untouched = file.bytes.size();
  }

  void Operation() {
    if (left_ > 0 && --left_ == 0) throw Crashed();
  }

  NodePtr Find(const std::string& path) const {
    NodePtr node = root_;
    for (std::size_t begin = 0; node != nullptr && begin < path.size();) {
      const std::size_t end = std::min(path.find('/', begin), path.size());
      const std::string name = path.substr(begin, end - begin);
      if (!name.empty() && name != ".") {
        const auto it = node->names.find(name);
        node = it == node->names.end() ? nullptr : it->second;
      }
      begin = end + 1;
    }
    return node;
  }
  Node& File(const std::string& path, const char* operation) const {
    const NodePtr node = Find(path);
    if (node == nullptr || node->directory) throw IoError(operation, path, node == nullptr ? ENOENT : EISDIR);
    return *node;
  }
  Node& Directory(const std::string& path, const char* operation) const {
    const NodePtr node = Find(path);
    if (node == nullptr || !node->directory)
      throw IoError(operation, path, node == nullptr ? ENOENT : ENOTDIR);
    return *node;
  }

  // --- what may survive
  // ----------------------------------------------------------------------------------------------------- One
  // independent choice: the content of a file (name empty), or what a name of a directory points at.
  struct Choice {
    const Node* node;
    std::string name;
    std::size_t options;
  };

  std::vector<Node*> AllNodes() const {
    std::vector<Node*> nodes = {root_.get()};
    std::map<const Node*, bool> seen;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (std::exchange(seen[nodes[i]], true)) continue;
      for (const auto* names : {&nodes[i]->names, &nodes[i]->synced_names}) {
        for (const auto& [name, child] : *names) nodes.push_back(child.get());
      }
    }
    std::vector<Node*> once;
    for (Node* node : nodes) {
      if (std::exchange(seen[node], false)) once.push_back(node);
    }
    return once;
  }

  static std::vector<std::string> Contents(const Node& file) {
    if (file.bytes == file.synced) return {file.bytes};
    std::vector<std::string> contents = {file.synced, file.bytes};
    const std::size_t kept = file.untouched, added = file.bytes.size() - kept;
    if (added > 1) {
      for (const std::size_t part : {std::size_t{1}, added / 2, added - 1}) {
        contents.push_back(file.bytes.substr(0, kept + part));
      }
      std::string hole = file.bytes;
      hole.replace(kept, added / 2, std::string(added / 2, '\0'));
      contents.push_back(hole);
    }
    if (added > 0 && kept != file.synced.size()) contents.push_back(file.bytes.substr(0, kept));
    return contents;
  }

  std::vector<Choice> Choices() const {
    std::vector<Choice> choices;
    for (const Node* node : AllNodes()) {
      const std::size_t contents = Contents(*node).size();
      if (contents > 1) choices.push_back({node, "", contents});
      std::map<std::string, bool> names;
      for (const auto& [name, child] : node->names) names[name] = true;
      for (const auto& [name, child] : node->synced_names) names[name] = true;
      for (const auto& [name, unused] : names) {
        if (Target(node->names, name) != Target(node->synced_names, name)) choices.push_back({node, name, 2});
      }
    }
    return choices;
  }

  static NodePtr Target(const std::map<std::string, NodePtr>& names, const std::string& name) {
    const auto it = names.find(name);
    return it == names.end() ? nullptr : it->second;
  }

  static std::size_t Chosen(const std::vector<Choice>& choices, std::size_t world, const Node* node,
                            const std::string& name) {
    for (const Choice& choice : choices) {
      if (choice.node == node && choice.name == name) return world % choice.options;
      world /= choice.options;
    }
    return 0;
  }

  static NodePtr Survivor(const Node* node, const std::vector<Choice>& choices, std::size_t world,
                          std::map<const Node*, NodePtr>& copies) {
    NodePtr& copy = copies[node];
    if (copy != nullptr) return copy;
    copy = MakeNode(node->directory);
    const NodePtr result = copy;
    result->bytes = Contents(*node)[Chosen(choices, world, node, "")];
    std::map<std::string, NodePtr> names = node->synced_names;
    for (const auto& [name, child] : node->names) names.try_emplace(name, nullptr);
    for (auto& [name, target] : names) {
      if (Target(node->names, name) != target && Chosen(choices, world, node, name) == 1)
        target = Target(node->names, name);
      if (target != nullptr) result->names[name] = Survivor(target.get(), choices, world, copies);
    }
    Sync(*result);
    result->synced_names = result->names;
    return result;
  }

  NodePtr root_;
  int left_ = 0;
};

}  // namespace headsweep::testing
