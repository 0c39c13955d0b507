// SpillFile: what does not fit into memory, in a file without a name. Written from its start to its end, then read in the same
// order as often as wanted. A crash leaves nothing behind. Throws IoError (a full disk, say). Not thread-safe.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace headsweep {

class SpillFile {
 public:
  // On the file system of `beside`, a file that may not exist yet.
  explicit SpillFile(const std::string& beside);

  template <class T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    Write(&value, sizeof value);
  }
  template <class T>
  void PutAll(const std::vector<T>& values) {  // without their number
    static_assert(std::is_trivially_copyable_v<T>);
    Write(values.data(), values.size() * sizeof(T));
  }

  // To the start. Nothing is written any more once something was read.
  void Rewind();
  bool AtEnd() const { return read_ == written_; }
  template <class T>
  T Take() {
    T value{};
    Read(&value, sizeof value);
    return value;
  }
  template <class T>
  void TakeAll(std::vector<T>& values) {  // as many as values has
    Read(values.data(), values.size() * sizeof(T));
  }

 private:
  void Write(const void* data, std::size_t bytes);
  void Read(void* data, std::size_t bytes);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;  // for messages
  std::unique_ptr<std::FILE, Close> file_;
  std::size_t written_ = 0, read_ = 0;
};

}  // namespace headsweep
