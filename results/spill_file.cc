#include "results/spill_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "cluster/base/errors.h"

namespace headsweep {

SpillFile::SpillFile(const std::string& beside) : path_(fmt::format("{}.spill-{}", beside, ::getpid())) {
  const int descriptor = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (descriptor < 0) throw IoError("create", path_, errno);
  ::unlink(path_.c_str());
  file_.reset(::fdopen(descriptor, "w+b"));
  if (file_) return;
  const int error = errno;
  ::close(descriptor);
  throw IoError("open", path_, error);
}

void SpillFile::Write(const void* data, std::size_t bytes) {
  if (bytes != 0 && std::fwrite(data, 1, bytes, file_.get()) != bytes) throw IoError("write", path_, errno);
  written_ += bytes;
}

void SpillFile::Rewind() {
  if (std::fflush(file_.get()) != 0 || std::fseek(file_.get(), 0, SEEK_SET) != 0) throw IoError("write", path_, errno);
  read_ = 0;
}

void SpillFile::Read(void* data, std::size_t bytes) {
  if (bytes != 0 && std::fread(data, 1, bytes, file_.get()) != bytes)
    throw IoError("read", path_, std::ferror(file_.get()) != 0 ? errno : 0, "it is shorter than what was written");
  read_ += bytes;
}

}  // namespace headsweep
