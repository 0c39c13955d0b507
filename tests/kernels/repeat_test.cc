// Work that is repeated (a CUDA graph on CUDA backends) and copies beside which the host goes on.
#include <numeric>
#include <stdexcept>

#include "kernels/cuda/on_host/runtime.h"
#include "tests/kernels/op_test.h"

namespace headsweep::testing {
namespace {

struct CountCase {
  std::int64_t count;
};
std::ostream& operator<<(std::ostream& out, const CountCase& c) { return out << c.count << " values"; }

class RepeatTest : public OpTest<CountCase> {
 protected:
  PassNumbers* NewNumbers() {
    numbers_.push_back(backend().Allocate(sizeof(PassNumbers)));
    return static_cast<PassNumbers*>(numbers_.back());
  }
  void TearDown() override {
    for (void* memory : numbers_) backend().Free(memory);
    OpTest<CountCase>::TearDown();
  }
  bool on_host() { return backend().name() == "cuda-on-host"; }

 private:
  std::vector<void*> numbers_;
};

TEST_P(RepeatTest, EachTimeReadsWhatItsNumbersAreThen) {
  const std::int64_t count = shape().count;
  std::vector<float> x = Random(count);
  const Element* in = In(x);
  Element *repeated = Out(count), *direct = Out(count);
  PassNumbers* numbers = NewNumbers();
  std::unique_ptr<Backend::Recording> recording;
  Dropout by_numbers{0.3f, 7, 100, 5, numbers};
  const std::uint64_t launches = cuda_on_host::internal::CurrentActivity().graph_launches;
  for (int time = 0; time < 5; ++time) {
    const auto step = static_cast<std::uint64_t>(time) * 12;
    backend().CopyIn(numbers, {.site = step, .first_example = time * 3});
    backend().Repeat(recording, [&] { backend().ApplyDropout(in, repeated, 1, count, by_numbers); });
    backend().ApplyDropout(in, direct, 1, count, {0.3f, 7, 100 + step, 5 + time * 3});
    ExpectSameBits("dropped", Read(repeated, count), Read(direct, count));
  }
  if (on_host()) {
    EXPECT_EQ(cuda_on_host::internal::CurrentActivity().graph_launches, launches + 4);
  }
}

TEST_P(RepeatTest, ScratchThatHasGrownMeanwhileIsTheRecordingsToo) {
  const std::vector<float> small = Random(shape().count), large = Random(400000);
  const float *x = InFloats(small), *y = InFloats(large);
  float *sum = OutFloats(1), *other = OutFloats(1);
  std::unique_ptr<Backend::Recording> recording;
  float expected = 0;
  for (int time = 0; time < 5; ++time) {
    backend().Repeat(recording, [&] { backend().SumOfSquares(x, shape().count, sum); });
    const float now = Read(sum, 1)[0];
    if (time == 0) expected = now;
    EXPECT_EQ(now, expected) << "time " << time;
    if (time == 2) backend().SumOfSquares(y, static_cast<std::int64_t>(large.size()), other);
  }
}

TEST_P(RepeatTest, AnErrorInItLeavesTheBackendUsable) {
  float* x = OutFloats(shape().count);
  std::unique_ptr<Backend::Recording> recording;
  int calls = 0;
  const auto work = [&] {
    backend().Fill(x, 1, shape().count);
    if (++calls == 2) throw std::runtime_error("the second time");
  };
  backend().Repeat(recording, work);
  EXPECT_THROW(backend().Repeat(recording, work), std::runtime_error);
  backend().Fill(x, 2, shape().count);
  EXPECT_EQ(Read(x, shape().count), std::vector<float>(static_cast<std::size_t>(shape().count), 2.0f));
  backend().Repeat(recording, work);
  EXPECT_EQ(Read(x, shape().count), std::vector<float>(static_cast<std::size_t>(shape().count), 1.0f));
}

TEST_P(RepeatTest, AMailboxHoldsWhatWasPostedNotWhatCameLater) {
  const std::int64_t count = shape().count;
  float* x = OutFloats(count);
  const auto mailbox = backend().MakeMailbox(2 * count);
  for (const float round : {1.0f, 10.0f}) {
    backend().Fill(x, round, count);
    mailbox->Post(count, x, count);
    backend().Fill(x, round + 1, count);
    mailbox->Post(0, x, count);
    backend().Fill(x, round + 2, count);
    const float* values = mailbox->Wait();
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(values[i], round + 1) << i;
      ASSERT_EQ(values[count + i], round) << i;
    }
    EXPECT_EQ(Read(x, count), std::vector<float>(static_cast<std::size_t>(count), round + 2));
  }
}

TEST_P(RepeatTest, MarkedCopiesWaitForWhatWasBeforeTheMarkAndForNothingElse) {
  const std::int64_t count = shape().count;
  std::vector<float> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0.0f);
  const float* from = InFloats(numbers);
  float *x = OutFloats(1), *later = OutFloats(1);
  backend().Synchronize();
  backend().Fill(x, 3, 1);
  backend().Mark();
  backend().Fill(later, 4, 1);
  std::vector<float> out(numbers.size() + 1, -1);
  backend().CopyOutMarked(out.data(), x, 1);
  EXPECT_EQ(out[0], 3.0f);
  backend().CopyOutMarked(out.data(), from, count);
  EXPECT_TRUE(std::equal(numbers.begin(), numbers.end(), out.begin()));
  EXPECT_EQ(out.back(), -1);
  // There a device's memory can be looked at without asking.
  if (on_host()) {
    EXPECT_TRUE(std::isnan(later[0])) << "the copy waited for work after the mark";
  }
  EXPECT_EQ(Read(later, 1)[0], 4.0f);
}

// 2500000: more than the pinned memory that marked copies go through.
HEADSWEEP_OP_SUITE(RepeatTest, CountCase, {{1}, {130}, {2500000}});

struct NumbersCase {
  int B, T, H, D;
};
std::ostream& operator<<(std::ostream& out, const NumbersCase& c) {
  return out << "B" << c.B << " T" << c.T << " H" << c.H << " D" << c.D;
}

class AttentionNumbersTest : public OpTest<NumbersCase> {};

TEST_P(AttentionNumbersTest, DropoutWithNumbersIsThatOfTheirSums) {
  const auto [B, T, H, D] = shape();
  const std::int64_t width = H * D, values = std::int64_t{B} * T * width;
  AttentionShape at{B, T, T, H, D, width, width, true, nullptr, 0.4f, {0.25f, 9, 0, 0}};
  std::vector<float> in[4];
  Element* tensors[4];
  for (int i = 0; i < 4; ++i) {
    in[i] = Random(values);
    tensors[i] = In(in[i]);
  }
  auto* numbers = static_cast<PassNumbers*>(backend().Allocate(sizeof(PassNumbers)));
  backend().CopyIn(numbers, {.site = 1000, .first_example = 3});
  std::vector<float> results[2];
  for (int way = 0; way < 2; ++way) {
    at.dropout.site = way == 0 ? 17 : 1017;
    at.dropout.first_example = way == 0 ? 2 : 5;
    at.dropout.numbers = way == 0 ? numbers : nullptr;
    Element *out = Out(values), *dq = Out(values), *dk = Out(values), *dv = Out(values);
    float *lse = OutFloats(B * H * T), *delta = OutFloats(B * H * T);
    backend().AttentionForward(at, tensors[0], tensors[1], tensors[2], nullptr, out, nullptr, lse);
    backend().AttentionBackward(at, tensors[0], tensors[1], tensors[2], nullptr, out, lse, tensors[3], dq, dk,
                                dv, delta);
    for (const Element* result : {out, dq, dk, dv}) {
      const std::vector<float> read = Read(result, values);
      results[way].insert(results[way].end(), read.begin(), read.end());
    }
  }
  ExpectSameBits("attention", results[0], results[1]);
  backend().Free(numbers);
}

HEADSWEEP_OP_SUITE(AttentionNumbersTest, NumbersCase, {{2, 8, 2, 16}, {2, 7, 3, 5}, {1, 33, 1, 40}});

}  // namespace
}  // namespace headsweep::testing
