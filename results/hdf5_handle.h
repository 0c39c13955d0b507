// Handle: an owned HDF5 identifier, and the checks around HDF5's calls. Only for the .cc files of results/.
// Every call's status goes through Check (or a Handle's constructor): HDF5 reports a full disk from H5Dclose
// while H5Fclose still returns success (seen with 1.10.8), so no return code may be dropped. HDF5 as Debian
// builds it is not thread-safe: one thread at a time.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headsweep::hdf5 {

// Turns HDF5's printing off (errors become exceptions) and its exit handler (1.10.8 crashes in it after a
// full disk; every file is closed explicitly here). Idempotent; called by OpenFile, OpenImage and CreateFile.
void Initialize();

// Throws IoError with HDF5's own message, the innermost first, and the errno in it if there is one. Clears
// the error stack.
[[noreturn]] void ThrowLastError(std::string_view operation, const std::string& path);

// status, when it is not negative. Otherwise throws as above. For herr_t, htri_t, hssize_t and the like.
template <class Status>
Status Check(Status status, std::string_view operation, const std::string& path) {
  if (status < 0) ThrowLastError(operation, path);
  return status;
}

class Handle {
 public:
  using CloseFunction = herr_t (*)(hid_t);

  Handle() = default;
  // Takes ownership of id; throws if it is negative.
  Handle(hid_t id, CloseFunction close, std::string_view operation, const std::string& path);
  ~Handle();  // closes; a failure is lost, so writers call Close()
  Handle(Handle&& other) noexcept;
  Handle& operator=(Handle&& other) noexcept;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  void Close();  // checked; afterwards the handle is empty, whatever happened

 private:
  void CloseQuietly() noexcept;

  hid_t id_ = -1;
  CloseFunction close_ = nullptr;
  std::string path_;  // for messages
};

// A new file on disk (replaced if it exists). userblock_bytes: 0, or a power of two >= 512 left free at the
// start.
Handle CreateFile(const std::string& path, hsize_t userblock_bytes = 0);
// A new file in memory alone; Image() gives its bytes.
Handle CreateInMemory(const std::string& path);
// The bytes of a file made by CreateInMemory, flushed first.
std::string Image(const Handle& file, const std::string& path);
// Opens an existing file read-only.
Handle OpenFile(const std::string& path);
// Opens the bytes of a file; path is used in messages alone. bytes may go when this returns.
Handle OpenImage(std::string_view bytes, const std::string& path);

// Variable-length UTF-8, and fixed-length NUL-padded UTF-8.
Handle TextType();
Handle FixedTextType(std::size_t bytes);

void WriteAttribute(hid_t object, const std::string& name, const std::string& value, const std::string& path);
void WriteAttribute(hid_t object, const std::string& name, const std::vector<std::string>& values,
                    const std::string& path);
void WriteAttribute(hid_t object, const std::string& name, std::int64_t value, const std::string& path);
void WriteAttribute(hid_t object, const std::string& name, double value, const std::string& path);
std::string ReadTextAttribute(hid_t object, const std::string& name, const std::string& path);
std::int64_t ReadIntAttribute(hid_t object, const std::string& name, const std::string& path);

}  // namespace headsweep::hdf5
