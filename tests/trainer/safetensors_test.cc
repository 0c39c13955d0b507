// safetensors: written as the format says, read back, and nothing unsound is ever accepted.
#include "trainer/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<float> kWeights = {1, -2, 3.5f, 0, 5, 6}, kBias = {7, 8};

std::string Sample() {
  return FormatSafetensors({{"weight", {2, 3}, kWeights}, {"empty", {0, 4}, {}}, {"bias", {2}, kBias}},
                           {{"step", "12"}});
}

// A file with the given header, and so many bytes of data.
std::string WithHeader(const std::string& header, std::size_t data_bytes) {
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, '\0');
}

std::string ErrorOf(const std::string& bytes) {
  try {
    Safetensors tensors(bytes, "x.safetensors");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Safetensors, BytesAreThoseOfTheFormat) {
  const std::string bytes = Sample();
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  const std::string header = bytes.substr(8, length);
  EXPECT_THAT(header, HasSubstr(R"("weight":{"data_offsets":[0,24],"dtype":"F32","shape":[2,3]})"));
  EXPECT_THAT(header, HasSubstr(R"("bias":{"data_offsets":[24,32],"dtype":"F32","shape":[2]})"));
  EXPECT_THAT(header, HasSubstr(R"("__metadata__":{"step":"12"})"));
  ASSERT_EQ(bytes.size(), 8 + length + 32);
  float value = 0;
  std::memcpy(&value, bytes.data() + 8 + length + 8, 4);
  EXPECT_EQ(value, 3.5f);
}

TEST(Safetensors, WhatIsWrittenReadsBack) {
  const Safetensors tensors(Sample(), "x");
  EXPECT_THAT(tensors.names(), ElementsAre("bias", "empty", "weight"));
  EXPECT_EQ(tensors.metadata().at("step"), "12");
  std::vector<float> weights(6), bias(2);
  tensors.Read("weight", {2, 3}, weights);
  tensors.Read("bias", {2}, bias);
  tensors.Read("empty", {0, 4}, {});
  EXPECT_EQ(weights, kWeights);
  EXPECT_EQ(bias, kBias);
}

TEST(Safetensors, AMissingTensorOrAnotherShapeIsNamed) {
  const Safetensors tensors(Sample(), "model.safetensors");
  std::vector<float> out(6);
  EXPECT_THROW(tensors.Read("gamma", {6}, out), ConfigError);
  try {
    tensors.Read("weight", {3, 2}, out);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("model.safetensors: tensor weight has shape (2, 3), expected (3, 2)"));
  }
}

TEST(Safetensors, TruncatedAtAnyLengthIsRefused) {
  const std::string bytes = Sample();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THAT(ErrorOf(bytes.substr(0, length)), HasSubstr("x.safetensors is not a sound safetensors file"))
        << length;
  }
  EXPECT_THAT(ErrorOf(bytes + "x"), HasSubstr("33 follow the header"));
  EXPECT_EQ(ErrorOf(bytes), "");
}

TEST(Safetensors, NoFlippedBitInTheHeaderReachesMemoryItShouldNot) {
  const std::string bytes = Sample();
  for (std::size_t at = 0; at < bytes.size() - 32; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      try {
        const Safetensors tensors(flipped, "x");  // a flip in a name or in a space may leave a sound file
        std::size_t values = 0;
        for (const std::string& name : tensors.names()) {
          std::size_t count = 1;
          for (const std::int64_t dim : tensors.dims(name)) count *= static_cast<std::size_t>(dim);
          std::vector<float> out(count);
          tensors.Read(name, tensors.dims(name), out);
          values += count;
        }
        EXPECT_EQ(values, 8u);
      } catch (const ConfigError&) {
      }
    }
  }
}

TEST(Safetensors, UnsoundHeadersAreRefusedByTheirFault) {
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  const std::string good = tensor("F32", "[2]", "[0,8]");
  EXPECT_EQ(ErrorOf(WithHeader(R"({"a":)" + good + "}", 8)), "");
  struct Case {
    std::string header;
    std::size_t bytes;
    std::string reason;
  };
  const Case cases[] = {
      {R"({"a":)" + good + R"(,"a":)" + good + "}", 8, "named twice"},
      {R"({"a":)" + tensor("F16", "[4]", "[0,8]") + "}", 8, "not F32"},
      {R"({"a":)" + tensor("F32", "[3]", "[0,8]") + "}", 8, "does not fit"},
      {R"({"a":)" + tensor("F32", "[-2]", "[0,8]") + "}", 8, "not a list of counts"},
      {R"({"a":)" + tensor("F32", "[2.0]", "[0,8]") + "}", 8, "not a list of counts"},
      {R"({"a":)" + tensor("F32", "[4294967296,4294967296]", "[0,0]") + "}", 0, "does not fit"},
      {R"({"a":)" + tensor("F32", "[2]", "[4,12]") + "}", 12, "hole or overlaps"},
      {R"({"a":)" + good + R"(,"b":)" + tensor("F32", "[2]", "[4,12]") + "}", 12, "hole or overlaps"},
      {R"({"a":)" + tensor("F32", "[2]", "[8,0]") + "}", 8, "hole or overlaps"},
      {R"({"a":)" + tensor("F32", "[2]", "[0,8,8]") + "}", 8, "not two"},
      {R"({"a":)" + good + "}", 16, "16 follow the header"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", 8, "exactly dtype"},
      {R"({"a":3})", 0, "exactly dtype"},
      {R"([1,2])", 0, "not a JSON object"},
      {R"({"a":)", 0, "does not parse"},
      {R"({"__metadata__":{"x":1}})", 0, "does not parse"},
  };
  for (const Case& c : cases)
    EXPECT_THAT(ErrorOf(WithHeader(c.header, c.bytes)), HasSubstr(c.reason)) << c.header;
  std::string huge(16, '\xff');  // a length near 2^64 must not wrap around
  EXPECT_THAT(ErrorOf(huge), HasSubstr("header of"));
}

}  // namespace
}  // namespace headsweep
