#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cluster/base/errors.h"
#include "cluster/base/hash.h"
#include "data/batches.h"
#include "data/token_format.h"

namespace headsweep {
namespace {

std::uint64_t PaddedTokenBytes(std::uint64_t tokens, std::uint64_t token_bytes) {
  return (tokens * token_bytes + 7) / 8 * 8;
}

std::uint64_t HeaderChecksum(const TokenHeader& header) {
  return Checksum(&header, offsetof(TokenHeader, header_checksum));
}

[[noreturn]] void Refuse(const std::string& path, const std::string& reason) {
  throw ConfigError(fmt::format(
      "token file {}: {}; delete its folder and run again: prepared data is rebuilt from the text", path,
      reason));
}

// Every check that needs only the header and the file's size, most telling first.
void CheckHeader(const std::string& path, const TokenHeader& header, std::uint64_t file_bytes) {
  if (std::memcmp(header.magic, kTokenMagic, sizeof kTokenMagic) != 0)
    Refuse(path, "wrong magic, this is no token file of headsweep");
  if (header.version != kTokenVersion)
    Refuse(path,
           fmt::format("format version {}, this program reads version {}", header.version, kTokenVersion));
  if (header.token_bytes != 2 && header.token_bytes != 4)
    Refuse(path, fmt::format("token size of {} bytes, expected 2 or 4", header.token_bytes));
  if (header.reserved != 0) Refuse(path, "the reserved field is not 0");
  if (header.payload_bytes != file_bytes - sizeof(TokenHeader))
    Refuse(path, fmt::format("size of {} bytes, the header promises {}: truncated or damaged", file_bytes,
                             header.payload_bytes + sizeof(TokenHeader)));
  // Bounds first, so that the products below cannot overflow.
  if (header.tokens > header.payload_bytes)
    Refuse(path, fmt::format("impossible token count {}", header.tokens));
  if (header.sentences > header.payload_bytes)
    Refuse(path, fmt::format("impossible sentence count {}", header.sentences));
  const std::uint64_t expected =
      PaddedTokenBytes(header.tokens, header.token_bytes) + (header.sentences + 1) * sizeof(std::int64_t);
  if (expected != header.payload_bytes)
    Refuse(path, fmt::format("token count {} and sentence count {} do not fit its size", header.tokens,
                             header.sentences));
  if (HeaderChecksum(header) != header.header_checksum) Refuse(path, "header checksum does not match");
}

}  // namespace

std::string SerializeTokens(std::span<const std::int32_t> tokens, std::span<const std::int64_t> starts,
                            int vocabulary) {
  HEADSWEEP_CHECK(
      !starts.empty() && starts.front() == 0 && starts.back() == static_cast<std::int64_t>(tokens.size()),
      "sentence table does not span {} tokens", tokens.size());
  TokenHeader header{};
  std::memcpy(header.magic, kTokenMagic, sizeof kTokenMagic);
  header.version = kTokenVersion;
  header.vocabulary = static_cast<std::uint32_t>(vocabulary);
  header.token_bytes = vocabulary <= 65536 ? 2 : 4;
  header.tokens = tokens.size();
  header.sentences = starts.size() - 1;
  const std::uint64_t token_area = PaddedTokenBytes(header.tokens, header.token_bytes);
  header.payload_bytes = token_area + starts.size_bytes();

  std::string bytes(sizeof header + header.payload_bytes, '\0');
  char* out = bytes.data() + sizeof header;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    HEADSWEEP_CHECK(tokens[i] >= 0 && tokens[i] < vocabulary, "token {} outside a vocabulary of {}",
                    tokens[i], vocabulary);
    // Little-endian, so the low bytes come first.
    std::memcpy(out + i * header.token_bytes, &tokens[i], header.token_bytes);
  }
  std::memcpy(out + token_area, starts.data(), starts.size_bytes());
  header.payload_checksum = Checksum(out, header.payload_bytes);
  header.header_checksum = HeaderChecksum(header);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

struct TokenFile::Mapping {
  const char* base = nullptr;
  std::size_t bytes = 0;
  TokenHeader header{};
  const std::uint16_t* narrow = nullptr;  // one of narrow and wide is set
  const std::int32_t* wide = nullptr;
  const std::int64_t* starts = nullptr;

  ~Mapping() {
    if (base != nullptr) ::munmap(const_cast<char*>(base), bytes);
  }
};

TokenFile::TokenFile(const std::string& path) : mapping_(std::make_unique<Mapping>()) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw IoError("open", path, errno);
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    const int error_number = errno;
    ::close(fd);
    throw IoError("stat", path, error_number);
  }
  const std::size_t bytes = static_cast<std::size_t>(info.st_size);
  if (bytes < sizeof(TokenHeader)) {
    ::close(fd);
    Refuse(path, fmt::format("size of {} bytes, too short for a header: truncated or damaged", bytes));
  }
  void* base = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  const int error_number = errno;
  ::close(fd);  // the mapping keeps the file
  if (base == MAP_FAILED) throw IoError("map", path, error_number);

  Mapping& m = *mapping_;
  m.base = static_cast<const char*>(base);
  m.bytes = bytes;
  std::memcpy(&m.header, m.base, sizeof m.header);
  CheckHeader(path, m.header, bytes);
  const char* payload = m.base + sizeof m.header;
  if (Checksum(payload, m.header.payload_bytes) != m.header.payload_checksum)
    Refuse(path, "checksum of the tokens does not match");
  if (m.header.token_bytes == 2) {
    m.narrow = reinterpret_cast<const std::uint16_t*>(payload);
  } else {
    m.wide = reinterpret_cast<const std::int32_t*>(payload);
  }
  m.starts = reinterpret_cast<const std::int64_t*>(payload +
                                                   PaddedTokenBytes(m.header.tokens, m.header.token_bytes));
}

TokenFile::~TokenFile() = default;
TokenFile::TokenFile(TokenFile&&) noexcept = default;
TokenFile& TokenFile::operator=(TokenFile&&) noexcept = default;

std::int64_t TokenFile::size() const { return static_cast<std::int64_t>(mapping_->header.tokens); }

std::int32_t TokenFile::operator[](std::int64_t i) const {
  return mapping_->narrow != nullptr ? static_cast<std::int32_t>(mapping_->narrow[i]) : mapping_->wide[i];
}

std::int64_t TokenFile::sentences() const { return static_cast<std::int64_t>(mapping_->header.sentences); }

std::int64_t TokenFile::SentenceStart(std::int64_t i) const { return mapping_->starts[i]; }

int TokenFile::vocabulary() const { return static_cast<int>(mapping_->header.vocabulary); }

std::uint64_t TokenFile::checksum() const { return mapping_->header.payload_checksum; }

}  // namespace headsweep
