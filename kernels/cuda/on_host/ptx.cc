#include "kernels/cuda/on_host/ptx.h"

#include <cstring>

#include "cluster/base/errors.h"

namespace headsweep::cuda_on_host::internal {

namespace {

constexpr std::uint32_t kWholeWarp = ~0u;

void RequireWholeWarp(const WarpMeeting& meeting, const char* what) {
  if (meeting.lanes != kWholeWarp)
    Misuse(fmt::format("{} by lanes {:#010x} only: it needs the whole warp", what, meeting.lanes));
}

void RequireAligned(const void* p, const char* what) {
  if (reinterpret_cast<std::uintptr_t>(p) % 16 != 0) {
    Misuse(fmt::format("{} at an address that is not a multiple of 16", what));
  }
}

float LowHalf(std::uint32_t pair) {
  pair <<= 16;
  float x;
  std::memcpy(&x, &pair, sizeof(x));
  return x;
}
float HighHalf(std::uint32_t pair) {
  pair &= 0xFFFF0000u;
  float x;
  std::memcpy(&x, &pair, sizeof(x));
  return x;
}

struct MmaArguments {
  float* d;
  const std::uint32_t* a;
  const std::uint32_t* b;
};

void Multiply(const WarpMeeting& meeting) {
  RequireWholeWarp(meeting, "mma");
  float A[16][16], B[16][8], D[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& own = *static_cast<const MmaArguments*>(meeting.arguments[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      float* const pair = &A[g + 8 * (i % 2)][2 * t + 8 * (i / 2)];
      pair[0] = LowHalf(own.a[i]);
      pair[1] = HighHalf(own.a[i]);
      D[g + 8 * (i / 2)][2 * t + i % 2] = own.d[i];
    }
    for (int i = 0; i < 2; ++i) {
      B[2 * t + 8 * i][g] = LowHalf(own.b[i]);
      B[2 * t + 8 * i + 1][g] = HighHalf(own.b[i]);
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      const float factor = A[row][k];
      for (int column = 0; column < 8; ++column) D[row][column] += factor * B[k][column];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    float* const d = static_cast<const MmaArguments*>(meeting.arguments[lane])->d;
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) d[i] = D[g + 8 * (i / 2)][2 * t + i % 2];
  }
}

struct LoadArguments {
  std::uint32_t* r;
  const void* row;
  int count;
};

template <bool kTransposed>
void Load(const WarpMeeting& meeting) {
  RequireWholeWarp(meeting, "ldmatrix");
  const int count = static_cast<const LoadArguments*>(meeting.arguments[0])->count;
  std::uint16_t matrix[4][8][8];
  for (int i = 0; i < 8 * count; ++i) {
    const auto& own = *static_cast<const LoadArguments*>(meeting.arguments[i]);
    if (own.count != count) Misuse("ldmatrix with different numbers of matrices in one warp");
    RequireAligned(own.row, "ldmatrix row");
    std::memcpy(matrix[i / 8][i % 8], own.row, 16);
  }
  for (int lane = 0; lane < 32; ++lane) {
    std::uint32_t* const r = static_cast<const LoadArguments*>(meeting.arguments[lane])->r;
    const int g = lane / 4, t = lane % 4;
    for (int m = 0; m < count; ++m) {
      const std::uint32_t low = kTransposed ? matrix[m][2 * t][g] : matrix[m][g][2 * t];
      const std::uint32_t high = kTransposed ? matrix[m][2 * t + 1][g] : matrix[m][g][2 * t + 1];
      r[m] = low | high << 16;
    }
  }
}

}  // namespace

void MmaBf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  MmaArguments arguments{d, a, b};
  MeetWarp(kWholeWarp, "mma", &arguments, Multiply);
}

void LoadMatrices(std::uint32_t* r, const void* row, int count, bool transposed) {
  LoadArguments arguments{r, row, count};
  MeetWarp(kWholeWarp, "ldmatrix", &arguments, transposed ? Load<true> : Load<false>);
}

void CopyAsync16(void* to, const void* from, bool valid) {
  RequireAligned(to, "asynchronous copy");
  if (valid) RequireAligned(from, "asynchronous copy");
  Poison(to, 16);
  current->copies.push_back({to, valid ? from : nullptr, current->copy_group});
}

void CopyAsyncWait(std::uint64_t unfinished_groups) {
  Thread& thread = *current;
  if (thread.copy_group < unfinished_groups) return;
  const std::uint64_t end = thread.copy_group - unfinished_groups;
  std::size_t done = 0;
  for (; done < thread.copies.size() && thread.copies[done].group < end; ++done) {
    const AsyncCopy& copy = thread.copies[done];
    if (copy.from != nullptr) {
      std::memcpy(copy.to, copy.from, 16);
    } else {
      std::memset(copy.to, 0, 16);
    }
  }
  thread.copies.erase(thread.copies.begin(), thread.copies.begin() + static_cast<std::ptrdiff_t>(done));
}

}  // namespace headsweep::cuda_on_host::internal
