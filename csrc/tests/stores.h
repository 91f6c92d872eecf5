// tests/stores.h: small stores on disk, and the rows they must give, worked out token by token.
#pragma once

#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "core/fill/filler.h"
#include "random.h"

// A folder that is gone when the test is over.
class Folder {
 public:
  Folder() {
    auto pattern = (std::filesystem::temp_directory_path() / "millstream-test-XXXXXX").string();
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void write_file(const std::string& path, const std::vector<std::byte>& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  CHECK(file.good());
}

template <typename Word>
void append(std::vector<std::byte>& bytes, Word word) {
  bytes.resize(bytes.size() + sizeof word);
  std::memcpy(bytes.data() + bytes.size() - sizeof word, &word, sizeof word);
}

inline std::vector<std::byte> framed(const millstream::Frame& frame) {
  const auto bytes = millstream::encode_frame(frame);
  return {bytes.begin(), bytes.end()};
}

// The shape of a batch in which all sources are cut into rows in the same way.
struct RowShape {
  std::size_t length = 0;
  millstream::Labels labels = millstream::Labels::next;
  millstream::Documents documents = millstream::Documents::attend;
  std::int64_t pad_id = 0;
  std::size_t id_bytes = 8;

  operator millstream::FeedShape() const { return {length, labels, pad_id, id_bytes}; }
};

// A store whose contents the test knows by heart.
class TestStore {
 public:
  using Document = std::vector<std::uint32_t>;
  using Shard = std::vector<Document>;

  // With a `block`, every other shard is packed, the first one too.
  TestStore(millstream::Dtype dtype, const std::vector<Shard>& shards, std::uint32_t block = 0)
      : dtype_(dtype), block_(block) {
    for (const auto& shard : shards) add(shard);
  }

  std::vector<std::uint32_t> tokens;
  std::vector<std::uint64_t> ends;  // of documents, in tokens of the store
  std::vector<std::uint64_t> table;

  const Folder& folder() const { return folder_; }
  std::string bin(std::size_t shard) const { return folder_ / (name(shard) + ".bin"); }
  std::string index(std::size_t shard) const { return folder_ / (name(shard) + ".idx"); }
  std::size_t shards() const { return table.size() / 8; }

  millstream::StoreLayout layout() const {
    millstream::StoreLayout layout;
    layout.directory = folder_.path();
    layout.dtype = dtype_;
    layout.header_bytes = 64;
    layout.table = table.data();
    layout.shards = shards();
    layout.index = millstream::IndexKind::ends;
    layout.block_tokens = block_;
    return layout;
  }

  std::shared_ptr<millstream::Shards> open(std::size_t most_mapped = 16'384) const {
    return open_among(std::make_shared<millstream::Shards::Mapped>(most_mapped));
  }

  // A store that shares a limit of mappings with others.
  std::shared_ptr<millstream::Shards> open_among(std::shared_ptr<millstream::Shards::Mapped> mapped) const {
    return std::make_shared<millstream::Shards>(layout(), std::move(mapped));
  }

  // Rows of a shape that this store gives.
  std::uint64_t samples(const RowShape& shape, bool pad_tail = false) const {
    if (shape.documents == millstream::Documents::row) return ends.size();
    const auto inputs = tokens.empty() ? 0 : tokens.size() - 1;
    return pad_tail ? (inputs + shape.length - 1) / shape.length : inputs / shape.length;
  }

  bool weighted() const { return dtype_ == millstream::Dtype::weighted; }
  std::int64_t id(std::uint64_t token) const { return tokens[token] % (weighted() ? 1u << 24 : ~0u); }
  float weight(std::uint64_t token) const { return weighted() ? millstream::weight_table[tokens[token] >> 24] : 1.0F; }
  std::int64_t target(std::uint64_t token) const { return weight(token) == 0.0F ? millstream::no_loss : id(token); }

  std::uint64_t document_of(std::uint64_t token) const {
    std::uint64_t document = 0;
    while (ends[document] <= token) ++document;
    return document;
  }

 private:
  static std::string name(std::size_t shard) {
    const auto digits = std::to_string(shard * 2);  // file numbers have gaps
    return std::string(5 - digits.size(), '0') + digits;
  }

  // Blocks, and the table of their ends in the file.
  static std::vector<std::byte> packed(const std::vector<std::byte>& body, std::size_t block_bytes) {
    std::vector<std::uint64_t> ends((body.size() + block_bytes - 1) / block_bytes);
    auto bytes = millstream::pack_blocks(body, block_bytes, 1, ends);
    for (const auto end : ends) append(bytes, end + millstream::frame_bytes);
    return bytes;
  }

  // What the document index says of the weights of a document.
  std::uint64_t weight_word(const Document& document) const {
    millstream::DocumentWeight weight;
    for (std::size_t i = 1; i < document.size(); ++i) weight.add({document[i]});
    return weight.word();
  }

  void add(const Shard& documents) {
    const auto number = shards();
    const std::uint64_t tag = number * 1000 + 17;
    const auto first_token = tokens.size(), first_document = ends.size();
    std::uint64_t bound = 0;
    std::vector<std::uint64_t> local_ends;
    for (const auto& document : documents) {
      for (const auto token : document)
        bound = std::max<std::uint64_t>(bound, (weighted() ? token % (1u << 24) : token) + std::uint64_t{1});
      tokens.insert(tokens.end(), document.begin(), document.end());
      ends.push_back(tokens.size());
      local_ends.push_back(tokens.size() - first_token);
    }
    const auto count = tokens.size() - first_token;
    std::vector<std::byte> body;
    for (auto i = first_token; i < tokens.size(); ++i) {
      if (dtype_ == millstream::Dtype::uint16) append(body, static_cast<std::uint16_t>(tokens[i]));
      else append(body, tokens[i]);
    }
    const auto block = number % 2 == 0 ? block_ : 0;
    const char kind = block == 0 ? 'T' : 'Z';
    auto bytes = framed({kind, static_cast<std::uint32_t>(dtype_), count, 64, bound, tag, documents.size(), block});
    if (block != 0) body = packed(body, block * millstream::width(dtype_));
    bytes.insert(bytes.end(), body.begin(), body.end());
    write_file(bin(number), bytes);
    bytes = framed({weighted() ? 'E' : 'D', 0, documents.size(), 64, documents.empty() ? 0 : count, tag, 0});
    for (std::size_t i = 0; i < local_ends.size(); ++i) {
      append(bytes, local_ends[i]);
      if (weighted()) append(bytes, weight_word(documents[i]));
    }
    write_file(index(number), bytes);
    for (const std::uint64_t word :
         {std::uint64_t{first_token}, std::uint64_t{count}, std::uint64_t{first_document},
          std::uint64_t{documents.size()}, tag, bound, std::uint64_t{number * 2}, std::uint64_t{0}})
      table.push_back(word);
  }

  Folder folder_;
  millstream::Dtype dtype_;
  std::uint32_t block_;
};

// Shards of some short documents; some documents and some shards are empty.
inline std::vector<TestStore::Shard> some_shards(Random& random, std::size_t count, std::uint64_t vocabulary = 60'000) {
  std::vector<TestStore::Shard> shards(count);
  for (auto& shard : shards) {
    shard.resize(random.chance(5) ? 1 : random.between(1, 4));
    const bool empty = random.chance(6);
    for (auto& document : shard) {
      if (empty || random.chance(6)) continue;
      document.resize(random.between(1, random.chance(4) ? 20 : 5));
      for (auto& token : document) token = static_cast<std::uint32_t>(random.below(vocabulary));
    }
  }
  shards.back().push_back({1, 2, 3, 4, 5, 6, 7, 8, 9});  // never nothing at all
  return shards;
}

struct ExpectedRow {
  std::vector<std::int64_t> inputs, labels, positions;
  std::vector<float> weights;
  std::vector<std::size_t> segments;  // where they start in the row
  std::uint64_t tokens = 0, cut = 0, targets = 0;

  void add(std::int64_t input, std::int64_t label, float weight, bool starts) {
    if (starts) segments.push_back(inputs.size());
    positions.push_back(starts ? 0 : positions.back() + 1);
    inputs.push_back(input);
    labels.push_back(label);
    weights.push_back(weight);
  }
  void pad(const RowShape& shape) {
    tokens = inputs.size();
    while (inputs.size() < shape.length) add(shape.pad_id, millstream::no_loss, 0.0F, true);
  }
};

// Adds tokens [begin, stop) of a store to a row; they may look at what lies before `limit`.
inline void add_tokens(ExpectedRow& row, const TestStore& store, const RowShape& shape, bool isolate, std::uint64_t begin,
                       std::uint64_t stop, std::uint64_t limit) {
  using millstream::Labels, millstream::no_loss;
  for (auto place = begin; place < stop; ++place) {
    const bool first = place == begin || (isolate && store.document_of(place) != store.document_of(place - 1));
    bool has_next = place + 1 < limit;
    if (has_next && isolate) has_next = store.document_of(place + 1) == store.document_of(place);
    const bool same = shape.labels == Labels::same, targeted = same ? !(isolate && first) : has_next;
    const auto target = same ? place : place + 1;
    row.add(store.id(place), targeted ? store.target(target) : no_loss, targeted ? store.weight(target) : 0.0F, first);
    row.targets += row.labels.back() != no_loss && !(same && first);
  }
}

// What a sample must become, by the definitions of DESIGN.md and nothing else.
inline ExpectedRow expected_row(const TestStore& store, const RowShape& shape, std::uint64_t sample) {
  using millstream::Documents;
  const bool isolate = shape.documents == Documents::isolate, whole = shape.documents == Documents::row;
  const auto begin = !whole ? sample * shape.length : sample == 0 ? 0 : store.ends[sample - 1];
  const auto limit = whole ? store.ends[sample] : store.tokens.size();  // of what may be looked at
  const auto stop = std::min<std::uint64_t>(begin + shape.length, limit);
  ExpectedRow row;
  add_tokens(row, store, shape, isolate, begin, stop, limit);
  if (whole) row.cut = limit - stop;
  row.pad(shape);
  return row;
}

// A row of whole documents, each of which sees only itself.
inline ExpectedRow packed_row(const TestStore& store, const RowShape& shape, const std::vector<std::uint64_t>& documents) {
  ExpectedRow row;
  for (const auto document : documents) {
    const auto begin = document == 0 ? 0 : store.ends[document - 1];
    const auto stop = std::min<std::uint64_t>(begin + shape.length, store.ends[document]);
    add_tokens(row, store, shape, true, begin, stop, stop);
    row.cut += store.ends[document] - stop;
  }
  row.pad(shape);
  return row;
}

inline ExpectedRow filler_row(const RowShape& shape) {
  ExpectedRow row;
  row.pad(shape);
  return row;
}

template <typename Out>
void check_rows_as(const millstream::Batch& batch, const std::vector<ExpectedRow>& rows) {
  const auto& layout = batch.layout();
  const auto column = layout.column_bytes() / sizeof(Out);
  const auto* const ids = reinterpret_cast<const Out*>(batch.data());
  std::vector<std::int64_t> starts;
  std::uint64_t tokens = 0, cut = 0, targets = 0;
  bool fractional = false;
  for (const auto& row : rows)
    for (const auto weight : row.weights) fractional = fractional || (weight != 0.0F && weight != 1.0F);
  CHECK(batch.facts.fractional == fractional);
  for (std::size_t number = 0; number < rows.size(); ++number) {
    const auto& row = rows[number];
    const auto* const inputs = ids + number * layout.length;
    for (std::size_t i = 0; i < layout.length; ++i) {
      CHECK(inputs[i] == static_cast<Out>(row.inputs[i]));
      CHECK(inputs[column + i] == static_cast<Out>(row.labels[i]));
      CHECK(!layout.isolated || inputs[2 * column + i] == static_cast<Out>(row.positions[i]));
      CHECK(!fractional || batch.weights()[number * layout.length + i] == row.weights[i]);
    }
    CHECK(batch.lengths()[number] == static_cast<std::int32_t>(row.tokens));
    CHECK(!layout.documents || batch.cuts()[number] == static_cast<std::int64_t>(row.cut));
    for (const auto start : row.segments) starts.push_back(static_cast<std::int64_t>(number * layout.length + start));
    tokens += row.tokens;
    cut += row.cut;
    targets += row.targets;
  }
  CHECK(batch.facts.tokens == tokens && batch.facts.cut == cut && batch.facts.targets == targets);
  if (!layout.isolated) return;
  CHECK(batch.facts.segments == starts.size());
  starts.push_back(static_cast<std::int64_t>(layout.rows * layout.length));
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    CHECK(batch.starts()[i] == starts[i]);
    if (i > 0) longest = std::max(longest, starts[i] - starts[i - 1]);
  }
  CHECK(batch.facts.longest_segment == static_cast<std::uint64_t>(longest));
}

// Does the batch hold these rows and nothing else?
inline void check_batch(const millstream::Batch& batch, const std::vector<ExpectedRow>& rows) {
  CHECK(batch.layout().rows == rows.size());
  if (batch.layout().id_bytes == 8) check_rows_as<std::int64_t>(batch, rows);
  else check_rows_as<std::int32_t>(batch, rows);
}

// One batch, filled here and now.
inline std::unique_ptr<millstream::Batch> filled(const millstream::Feed& feed, std::uint64_t first, std::uint64_t own,
                                                 std::size_t rows) {
  const auto layout = feed.layout(rows);
  const auto pool = std::make_shared<millstream::Pool>(layout.bytes(), std::make_shared<millstream::Budget>(), 0);
  auto batch = std::make_unique<millstream::Batch>(pool, pool->try_take(), layout);
  millstream::FeedScratch scratch;
  feed.fill(first, own, *batch, scratch, std::atomic<bool>(false), true);
  return batch;
}

// What rows weigh, by the labels and weights that they must have, whether or not they are filled meanwhile. Weights are hundredths, so floats of them are exact enough.
inline void check_weight(const millstream::Feed& feed, std::uint64_t first, const std::vector<ExpectedRow>& rows,
                         millstream::Labels labels) {
  millstream::StepWeight expected, found;
  for (const auto& row : rows) {
    auto starts = row.segments;
    starts.push_back(row.inputs.size());
    for (std::size_t segment = 0; segment + 1 < starts.size(); ++segment) {
      millstream::DocumentWeight weight;
      for (auto i = starts[segment]; i < starts[segment + 1]; ++i) {
        if (row.labels[i] == millstream::no_loss || (labels == millstream::Labels::same && i == starts[segment])) continue;
        ++weight.targets;
        weight.hundredths += static_cast<std::uint64_t>(row.weights[i] * 100 + 0.5F);
      }
      expected.add(weight);
    }
  }
  millstream::FeedScratch scratch;
  feed.weigh(first, rows.size(), found, scratch, std::atomic<bool>(false));
  CHECK(found == expected);
  CHECK(filled(feed, first, rows.size(), rows.size())->facts.step_weight == expected);
}

// A plan that goes through one store again and again.
inline millstream::Plan plain_plan(std::uint64_t samples, millstream::Shuffle shuffle = millstream::Shuffle::none) {
  const millstream::OrderSpec order{shuffle, samples, 99, 4, 3};
  return {{{order, order, 1, 0, 0}}, std::nullopt};
}
