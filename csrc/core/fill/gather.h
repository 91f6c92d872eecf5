// core/fill/gather.h: named rows -> batch. Rows of stores are found by their number. What changes while a batch is filled lies in the
// batch, in the thread's scratch or behind a lock (which shards are mapped), so any number of threads fill batches side by side.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/fill/assemble.h"
#include "core/fill/rows.h"
#include "core/memory/batch.h"
#include "core/order/plan.h"
#include "core/store/shards.h"

namespace millstream {

class Gather {
 public:
  Gather(std::vector<FeedSource> sources, const FeedShape& shape) : sources_(std::move(sources)), shape_(shape) {
    for (const auto& source : sources_) {
      if (source.shards == nullptr) throw std::invalid_argument("a source needs its store open");
      if (source.packing ? !source.whole_documents() : source.documents == Documents::packed)
        throw std::invalid_argument("packed rows need a packing, and windows of tokens have none");
      if (source.packing && source.packing->capacity() > shape_.length)
        throw std::invalid_argument("the bins of a packing are longer than the rows");
    }
    if (shape_.id_bytes != 4 && shape_.id_bytes != 8) throw std::invalid_argument("ids have 4 or 8 bytes");
    if (shape_.length == 0 || shape_.length > (std::size_t{1} << 30)) throw std::invalid_argument("rows of 1 to 2^30 tokens");
  }

  const FeedShape& shape() const { return shape_; }
  const std::vector<FeedSource>& sources() const { return sources_; }

  // Room for any batch of so many samples: for all the rows they may have, and all the places.
  BatchLayout layout(std::size_t samples) const {
    constexpr std::size_t most_tokens = (std::size_t{1} << 31) - 1;  // segment starts are 32 bits wide
    const auto most_rows = rows_of_a_sample();
    const auto length = (sample_tokens() - 1) / most_rows + 1;
    if (samples > most_tokens / (most_rows * length)) throw std::invalid_argument("a batch has less than 2^31 tokens");
    return {.rows = samples * most_rows,
            .length = length,
            .id_bytes = shape_.id_bytes,
            .isolated = std::ranges::any_of(sources_, &FeedSource::isolated),
            .documents = std::ranges::any_of(sources_, &FeedSource::whole_documents),
            .weighted = shape_.mean == MeanOf::segments || std::ranges::any_of(sources_, [](const auto& source) {
                          return source.shards->dtype() == Dtype::weighted;
                        })};
  }

  // What a RowScratch may grow to when batches of so many samples are filled.
  std::size_t scratch_bytes(std::size_t samples) const {
    std::size_t block_bytes = 0, packing_bytes = 0;
    bool joins = false;
    for (const auto& source : sources_) {
      block_bytes = std::max(block_bytes, source.shards->block_bytes());
      joins = joins || (source.shards->count() > 1 && !source.whole_documents());
      if (source.packing) packing_bytes += source.packing->bytes() + samples * source.most_documents * sizeof(Segment);
    }
    const bool joined = joins || block_bytes > 0;
    return RowScratch::bytes(samples, rows_of_a_sample(), read_tokens(), shape_, isolates(), joined) +
           DecodedBlocks::bytes(block_bytes) + packing_bytes;
  }

  // Adds up what the targets of some rows weigh.
  void weigh(std::span<const RowPlan> plan, StepWeight& weight, RowScratch& scratch, const std::atomic<bool>& stopping) const {
    Finders finders(sources_.size());
    BatchFacts facts;
    find_rows(plan, facts, finders, scratch, stopping, RowFinder::For::weighing);
    if (!stopping) add_weights(weight, scratch);
  }

  // Fills `batch` with rows; those that are missing become filler. Weighs them on the way if asked to: their documents are at
  // hand. Returns early, with a batch that must not be used, when `stopping` is set.
  void fill(std::span<const RowPlan> plan, Batch& batch, RowScratch& scratch, const std::atomic<bool>& stopping,
            bool weighing = false) const {
    const auto samples = batch.layout().rows / rows_of_a_sample();
    if (plan.size() > samples) throw std::invalid_argument("more rows than the batch has room for");
    batch.facts = {};
    Finders finders(sources_.size());  // what they find stays mapped while they live
    find_rows(plan, batch.facts, finders, scratch, stopping);
    if (stopping) return;
    batch.facts.rows = scratch.rows.size();
    batch.facts.filler = samples - plan.size();
    const auto longest = shape_.unit == 0 ? shape_.length : longest_row(scratch);
    batch.reshape(batch.facts.rows + batch.facts.filler, padded_length(longest, shape_.unit, shape_.length));
    if (shape_.id_bytes == 8) write_rows<std::int64_t>(batch, scratch, stopping);
    else write_rows<std::int32_t>(batch, scratch, stopping);
    if (weighing) add_weights(batch.facts.step_weight, scratch);
  }

 private:
  using Finders = std::vector<std::optional<RowFinder>>;
  static constexpr std::size_t rows_ahead = 8;

  // Calls `work` with a token of the type that a source is stored in.
  template <typename Work>
  auto as_stored(std::size_t source, const Work& work) const {
    switch (sources_[source].shards->dtype()) {
      case Dtype::uint16: return work(std::uint16_t{});
      case Dtype::uint32: return work(std::uint32_t{});
      case Dtype::weighted: return work(Weighted{});
      default: return work(std::int32_t{});
    }
  }

  // The most rows that a sample has, the most places that they take, and the most tokens that are read for them.
  std::size_t rows_of_a_sample() const {
    std::size_t most = 1;
    for (const auto& source : sources_) most = std::max(most, source.most_rows());
    return most;
  }

  std::size_t sample_tokens() const {
    auto most = shape_.length;
    for (const auto& source : sources_) most = std::max(most, source.budget());
    return most;
  }

  std::size_t read_tokens() const { return sample_tokens() + rows_of_a_sample() - 1; }  // a cut row is followed by a target

  static std::size_t longest_row(const RowScratch& scratch) {
    std::size_t longest = 0;
    for (const auto& row : scratch.rows) {
      std::size_t tokens = row.documents > 0 ? 0 : row.whole.count;
      for (const auto& document : std::span(scratch.documents).subspan(row.first_document, row.documents)) tokens += document.count;
      longest = std::max(longest, tokens);
    }
    return longest;
  }

  // Whether some rows are cut where documents end.
  bool isolates() const {
    return std::ranges::any_of(sources_, [](const auto& source) { return source.documents == Documents::isolate; });
  }

  void find_rows(std::span<const RowPlan> plan, BatchFacts& facts, Finders& finders, RowScratch& scratch,
                 const std::atomic<bool>& stopping, RowFinder::For purpose = RowFinder::For::copying) const {
    scratch.reset(plan.size(), read_tokens(), shape_, isolates());
    scratch.planned.resize(sources_.size());
    for (const auto& [source, sample] : plan) {
      if (stopping.load(std::memory_order_relaxed)) return;
      if (source >= sources_.size()) throw std::out_of_range("there is no source " + std::to_string(source));
      auto& finder = finders[source];
      if (!finder) finder.emplace(sources_[source], source, shape_, scratch, purpose);
      const auto first = scratch.rows.size();
      finder->find(sample);
      for (auto row = first; row < scratch.rows.size(); ++row) facts.cut += scratch.rows[row].cut;
      if (scratch.rows.size() <= rows_ahead) prefetch(scratch.rows.back().whole.tokens, shape_.length * 2);
    }
  }

  DataError shrunk(std::size_t row, const RowScratch& scratch) const {
    return sources_[scratch.rows[row].source].shards->shrunk(scratch.rows[row].shard);
  }

  // Adds what the targets of all found rows weigh.
  void add_weights(StepWeight& weight, RowScratch& scratch) const {
    volatile std::size_t number = 0;
    const bool alive = survives([&] {
      for (std::size_t row = 0; row < scratch.rows.size(); ++row) number = row, add_weight(row, weight, scratch);
    });
    if (!alive) throw shrunk(number, scratch);
  }

  // Adds what the targets of a found row weigh: as its index says, else by looking at its tokens.
  void add_weight(std::size_t number, StepWeight& weight, RowScratch& scratch) const {
    const auto& row = scratch.rows[number];
    if (row.weight) return weight.add(*row.weight);
    as_stored(row.source, [&](auto token) {
      const auto segments = segments_of<decltype(token)>(row, scratch);
      for (std::size_t i = 0; i < segments.size(); ++i) {
        const auto known = row.documents > 0 ? scratch.weights[row.first_document + i] : std::nullopt;
        weight.add(known ? *known : weigh_targets<decltype(token)>(segments[i], shape_.labels));
      }
    });
  }

  // Copies all rows under one guard: entering it costs as much as a short row.
  template <typename Out>
  void write_rows(Batch& batch, RowScratch& scratch, const std::atomic<bool>& stopping) const {
    SegmentStarts starts{batch.starts()};
    const auto rows = scratch.rows.size();
    volatile std::size_t number = 0;  // readable after a jump out of the copy
    const bool alive = survives([&] {
      for (std::size_t row = 0; row < rows && !stopping.load(std::memory_order_relaxed); ++row) {
        number = row;
        if (row + rows_ahead < rows) prefetch(scratch.rows[row + rows_ahead].whole.tokens, shape_.length * 2);
        write_row<Out>(batch, row, scratch, &starts);
      }
      if (batch.facts.fractional)
        for (std::size_t row = 0; row < rows; ++row) number = row, weigh(batch, row, scratch);
    });
    if (!alive) throw shrunk(number, scratch);
    for (auto filler = rows; filler < batch.layout().rows; ++filler) write_filler<Out>(batch, filler, &starts);
    if (batch.layout().isolated) starts.starts[starts.count] = static_cast<std::int32_t>(batch.layout().rows * batch.layout().length);
    batch.facts.segments = starts.count;
    batch.facts.longest_segment = starts.longest;
  }

  template <typename Out>
  RowSpace<Out> space_of(const Batch& batch, std::size_t number) const {
    auto* const inputs = reinterpret_cast<Out*>(batch.data()) + number * batch.layout().length;
    const auto column = batch.layout().column_bytes() / sizeof(Out);
    return {inputs, inputs + column, batch.layout().isolated ? inputs + 2 * column : nullptr};
  }

  template <typename Out>
  void write_row(Batch& batch, std::size_t number, RowScratch& scratch, SegmentStarts* starts) const {
    const auto source = scratch.rows[number].source;
    const auto facts = as_stored(source, [&](auto token) {
      using In = decltype(token);
      const auto& row = scratch.rows[number];
      const auto segments = segments_of<In>(row, scratch);
      for (const auto& segment : row.documents > 0 ? segments : std::span(&row.whole, 1))
        check_ids<Out>(static_cast<const In*>(segment.tokens), segment.count + segment.followed, source, row.shard);
      auto* const kept = batch.layout().isolated ? starts : nullptr;
      return assemble_row<In, Out>(segments, format(batch), space_of<Out>(batch, number), number * batch.layout().length, kept);
    });
    batch.sources()[number] = static_cast<std::int32_t>(source);
    batch.lengths()[number] = static_cast<std::int32_t>(facts.tokens);
    if (batch.layout().documents) batch.cuts()[number] = static_cast<std::int64_t>(scratch.rows[number].cut);
    batch.facts.tokens += facts.tokens;
    batch.facts.targets += facts.targets;
    batch.facts.fractional = batch.facts.fractional || facts.fractional || shape_.mean == MeanOf::segments;
  }

  void weigh(Batch& batch, std::size_t number, RowScratch& scratch) const {
    as_stored(scratch.rows[number].source, [&](auto token) {
      using In = decltype(token);
      const auto segments = segments_of<In>(scratch.rows[number], scratch);
      weigh_row<In>(segments, format(batch), batch.layout().isolated, batch.weights() + number * batch.layout().length);
    });
  }

  template <typename In>
  std::span<const Segment> segments_of(const FoundRow& row, RowScratch& scratch) const {
    if (row.documents > 0) return std::span(scratch.documents).subspan(row.first_document, row.documents);
    if (row.boundaries == 0) return {&row.whole, 1};
    cut_row(row, sizeof(In), std::span(scratch.boundaries).subspan(row.first_boundary, row.boundaries), scratch.segments);
    return scratch.segments;
  }

  RowFormat format(const Batch& batch) const { return {batch.layout().length, shape_.labels, shape_.pad_id, shape_.mean}; }

  template <typename Out>
  void write_filler(Batch& batch, std::size_t number, SegmentStarts* starts) const {
    auto* const kept = batch.layout().isolated ? starts : nullptr;
    const auto length = batch.layout().length;
    assemble_row<std::uint16_t, Out>({}, format(batch), space_of<Out>(batch, number), number * length, kept);
    if (batch.facts.fractional) std::fill_n(batch.weights() + number * length, length, 0.0F);
    batch.sources()[number] = -1;
    batch.lengths()[number] = 0;
    if (batch.layout().documents) batch.cuts()[number] = 0;
  }

  template <typename In>
  static std::string id_text(std::uint32_t id) {
    if constexpr (std::is_same_v<In, Weighted>) return std::to_string(id);
    else return std::to_string(static_cast<In>(id));
  }

  template <typename Out, typename In>
  void check_ids(const In* tokens, std::size_t count, std::size_t source, std::size_t shard) const {
    // Ids as wide as those of the batch could turn negative in it, whatever the store says of itself.
    constexpr bool fits = sizeof(In) < sizeof(Out) || std::is_same_v<In, Weighted>;
    constexpr std::uint32_t any_fits = fits ? 0 : std::uint32_t{1} << 31;
    const auto limit = sources_[source].id_limit == 0 ? any_fits : sources_[source].id_limit;
    if (limit == 0) return;
    if (const auto top = largest(tokens, count); top >= limit)
      throw IdError(sources_[source].shards->path(shard) + ": holds the id " + id_text<In>(top) +
                    ", but the vocabulary ends at " + std::to_string(limit - 1));
  }

  std::vector<FeedSource> sources_;
  FeedShape shape_;
};

}  // namespace millstream
