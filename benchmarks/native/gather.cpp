// The limit: rows of a mapped token file, widened into two reused buffers, and nothing else.
//
// Every batch loader has to do at least this. No queue, no order, no Python, no allocation: what is left
// is the memory system, so a loader's rate divided by this one's is the share of the machine it uses.
#include <cstddef>
#include <cstdint>

namespace {

// How far ahead the next rows are asked for. Short rows are bound by the latency of their first cache
// lines, which the hardware prefetcher cannot guess because the next row is elsewhere.
constexpr std::size_t rows_ahead = 8;
constexpr std::size_t lines_ahead = 8;
constexpr std::size_t tokens_per_line = 64 / sizeof(std::uint16_t);

// `restrict` and local copies of everything: otherwise a store to `inputs` might change `length`, and the
// loop is not vectorised.
void widen(const std::uint16_t* __restrict row, std::size_t length, std::int64_t* __restrict inputs,
           std::int64_t* __restrict labels) {
  for (std::size_t i = 0; i < length; ++i) inputs[i] = row[i];
  for (std::size_t i = 0; i < length; ++i) labels[i] = row[i + 1];
}

void widen(const std::uint16_t* __restrict row, std::size_t length, std::int64_t* __restrict out) {
  for (std::size_t i = 0; i < length; ++i) out[i] = row[i];
}

void prefetch(const std::uint16_t* row, std::size_t length) {
  const auto lines = length / tokens_per_line + 1;
  for (std::size_t i = 0; i < (lines < lines_ahead ? lines : lines_ahead); ++i)
    __builtin_prefetch(row + i * tokens_per_line);
}

}  // namespace

extern "C" {

// Fills one batch: row r is tokens[starts[r], starts[r] + length], labels shifted by one.
void gather(const std::uint16_t* tokens, const std::int64_t* starts, std::size_t rows, std::size_t length,
            std::int64_t* inputs, std::int64_t* labels) {
  for (std::size_t r = 0; r < rows; ++r) {
    if (r + rows_ahead < rows) prefetch(tokens + starts[r + rows_ahead], length);
    widen(tokens + starts[r], length, inputs + r * length, labels + r * length);
  }
}

// Fills `batches` batches one after another into `pairs` pairs of buffers in turn: Python is asked once.
void gather_many(const std::uint16_t* tokens, const std::int64_t* starts, std::size_t batches, std::size_t rows,
                 std::size_t length, std::size_t pairs, std::int64_t* inputs, std::int64_t* labels) {
  for (std::size_t b = 0; b < batches; ++b) {
    const auto* batch = starts + b * rows;
    const bool last = b + 1 == batches;
    const auto place = b % pairs * rows * length;
    for (std::size_t r = 0; r < rows; ++r) {
      if (!last || r + rows_ahead < rows) prefetch(tokens + batch[r + rows_ahead], length);
      widen(tokens + batch[r], length, inputs + place + r * length, labels + place + r * length);
    }
  }
}

// The same with one buffer of rows of length + 1, of which inputs and labels are two overlapping views:
// half the stores, but neither view is contiguous.
void gather_many_views(const std::uint16_t* tokens, const std::int64_t* starts, std::size_t batches,
                       std::size_t rows, std::size_t length, std::int64_t* block) {
  for (std::size_t b = 0; b < batches; ++b) {
    const auto* batch = starts + b * rows;
    const bool last = b + 1 == batches;
    for (std::size_t r = 0; r < rows; ++r) {
      if (!last || r + rows_ahead < rows) prefetch(tokens + batch[r + rows_ahead], length);
      widen(tokens + batch[r], length + 1, block + r * (length + 1));
    }
  }
}

}  // extern "C"
