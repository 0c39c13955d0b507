// Token and position embeddings.
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"

namespace headsweep {

using cpu::F;

void CpuBackend::EmbeddingForward(const std::int32_t* tokens, const Element* token_table,
                                  const Element* position_table, Element* out, int B, int T, int C,
                                  float scale) {
  const float* table = F(token_table);
  const float* positions = F(position_table);
  float* y = F(out);
  cpu::ParallelRanges(threads_, static_cast<std::int64_t>(B) * T, cpu::RowGrain(C),
                      [&](std::int64_t begin, std::int64_t end, int) {
                        for (std::int64_t r = begin; r < end; ++r) {
                          const float* token = table + static_cast<std::int64_t>(tokens[r]) * C;
                          float* row = y + r * C;
                          if (positions == nullptr) {
                            for (int c = 0; c < C; ++c) row[c] = scale * token[c];
                          } else {
                            const float* position = positions + r % T * C;
                            for (int c = 0; c < C; ++c) row[c] = scale * token[c] + position[c];
                          }
                        }
                      });
}

// Rows of the table are hit in any order and more than once, so threads share the columns instead: each walks
// all rows in order over its own columns. No atomics, and the same bits for any thread count.
void CpuBackend::EmbeddingBackward(const std::int32_t* tokens, const Element* dout, float* d_token_table,
                                   float* d_position_table, int B, int T, int C, int /*V*/, float scale) {
  constexpr int kColumns = 32;  // two cache lines: a piece's writes stay off its neighbours' lines
  const float* dy = F(dout);
  const std::int64_t R = static_cast<std::int64_t>(B) * T;
  cpu::ParallelRanges(threads_, C, kColumns, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = 0; r < R; ++r) {
      const float* dy_row = dy + r * C;
      float* token = d_token_table + static_cast<std::int64_t>(tokens[r]) * C;
      for (std::int64_t c = begin; c < end; ++c) token[c] += scale * dy_row[c];
      if (d_position_table != nullptr) {
        float* position = d_position_table + r % T * C;
        for (std::int64_t c = begin; c < end; ++c) position[c] += dy_row[c];
      }
    }
  });
}

}  // namespace headsweep
