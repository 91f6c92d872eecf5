// core/store/shards.h: the tokens and documents of a store, mapped shard by shard when first touched.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/memory/guard.h"
#include "core/memory/mapped.h"
#include "core/store/compressed.h"
#include "core/store/tokenfile.h"

namespace millstream {

// Data that is not what its header or table promised.
struct DataError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Ids that the vocabulary does not have: the data may be whole, but it is not for this model.
struct IdError : DataError {
  using DataError::DataError;
};

// A read-only mapping of a whole file.
class Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) throw DataError(path + ": cannot be opened (" + std::generic_category().message(errno) + ")");
    struct stat facts = {};
    const int failed = ::fstat(file, &facts);
    bytes_ = static_cast<std::size_t>(facts.st_size);
    tells_residency_ = facts.st_uid == ::geteuid() || ::access(path.c_str(), W_OK) == 0;
    if (failed == 0 && bytes_ > 0) data_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file, 0);
    const int reason = errno;
    ::close(file);
    if (failed != 0 || data_ == MAP_FAILED)
      throw DataError(path + ": cannot be mapped (" + std::generic_category().message(reason) + ")");
  }
  ~Mapping() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // The system tells only the owner of a file, or who may write it, what of it is in memory; others hear that all of it is.
  bool tells_residency() const { return tells_residency_; }

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), bytes_}; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool tells_residency_ = true;
};

// Where documents end: our own index, Megatron's, or none (one document).
enum class IndexKind : std::uint8_t { none, ends, megatron };

struct StoreLayout {
  std::string directory;  // of NNNNN.bin, or empty
  std::string file;       // one file, or empty
  Dtype dtype = Dtype::uint16;
  std::uint64_t header_bytes = 0;  // 0: the file has no frame
  std::uint32_t block_tokens = 0;  // of the largest blocks, where shards are packed; 0: none is
  const std::uint64_t* table = nullptr;  // borrowed: rows of eight (docs/reference/formats.md)
  std::size_t shards = 0;
  IndexKind index = IndexKind::none;
  std::string index_file;
  std::vector<std::pair<std::string, std::string>> paths;  // token file and index of each shard, or empty: as the above says
  std::uint64_t pointers_offset = 0, boundaries_offset = 0, sequences = 0, boundaries = 0;  // Megatron
};

class Shards {
 public:
  struct Row {
    std::uint64_t first_token, tokens, first_document, documents, tag, bound, number, zero;
  };

  // One mapped shard: where its tokens lie, and where its documents end.
  struct Shard {
    std::unique_ptr<Mapping> token_file, index_file;
    const std::byte* tokens = nullptr;  // null where they are packed
    PackedTokens packed;
    std::uint64_t token_count = 0, document_count = 1;
    const std::byte* ends = nullptr;        // our index
    std::size_t end_words = 1;              // 2 where it also says what documents weigh
    const std::byte* pointers = nullptr;    // Megatron's
    const std::byte* boundaries = nullptr;  // Megatron's
    std::uint64_t sequences = 0;
    std::size_t token_width = 2;

    std::uint64_t end(std::uint64_t document) const {
      if (ends != nullptr) return load(ends, document * end_words);
      if (pointers == nullptr || document + 1 >= document_count) return token_count;
      const auto sequence = load(boundaries, document + 1);
      return sequence < sequences ? load(pointers, sequence) / token_width : token_count;
    }

    // Whether the index says what documents weigh, and what it says.
    bool knows_weights() const { return ends != nullptr && end_words == 2; }
    std::uint64_t weight_word(std::uint64_t document) const { return load(ends, document * 2 + 1); }

    // The document that holds `token`; empty ones hold none. `document_count` if the index ends before it.
    std::uint64_t document_at(std::uint64_t token) const {
      std::uint64_t low = 0, high = document_count;
      while (low < high) {
        const auto middle = low + (high - low) / 2;
        if (end(middle) > token) high = middle;
        else low = middle + 1;
      }
      return low;
    }

    // The bytes of the file that hold some of its tokens; for a guard, where they are packed. Perhaps none, if the file lies.
    std::span<const std::byte> bytes_of(std::uint64_t start, std::uint64_t count) const {
      if (tokens != nullptr) return {tokens + start * token_width, count * token_width};
      const auto first = start / packed.block_tokens, last = (start + count - 1) / packed.block_tokens;
      const auto from = packed.start(first), to = packed.end(last);
      if (from < frame_bytes || from >= to || to > packed.table_start()) return {};
      return {packed.file + from, to - from};
    }

   private:
    static std::uint64_t load(const std::byte* array, std::uint64_t index) {
      std::uint64_t value;
      std::memcpy(&value, array + index * sizeof value, sizeof value);
      return value;
    }
  };

  using Mapped = MappedShards<Shard>;

  explicit Shards(StoreLayout layout, std::shared_ptr<Mapped> mapped = Mapped::of_this_process())
      : layout_(std::move(layout)), mapped_(std::move(mapped)), slots_(layout_.shards) {
    if (layout_.shards == 0) throw DataError("a store without shards");
    if (!layout_.paths.empty() && layout_.paths.size() != layout_.shards)
      throw std::invalid_argument("a store names the files of each of its shards, or of none");
    const auto last = row(layout_.shards - 1);
    tokens_ = last.first_token + last.tokens;
    documents_ = last.first_document + last.documents;
  }

  std::uint64_t tokens() const { return tokens_; }
  std::uint64_t documents() const { return documents_; }
  std::size_t count() const { return layout_.shards; }
  Dtype dtype() const { return layout_.dtype; }
  std::size_t block_bytes() const { return layout_.block_tokens * width(layout_.dtype); }

  Row row(std::size_t shard) const {
    Row row;
    std::memcpy(&row, layout_.table + shard * 8, sizeof row);
    return row;
  }

  std::uint64_t first_token(std::size_t shard) const { return layout_.table[shard * 8]; }
  std::uint64_t tokens_of(std::size_t shard) const { return layout_.table[shard * 8 + 1]; }

  std::size_t shard_of_token(std::uint64_t token) const { return locate(token, tokens_, &Row::first_token); }
  std::size_t shard_of_document(std::uint64_t document) const {
    return locate(document, documents_, &Row::first_document);
  }

  std::string path(std::size_t shard) const {
    if (!layout_.paths.empty()) return layout_.paths[shard].first;
    if (!layout_.file.empty()) return layout_.file;
    return layout_.directory + "/" + name(shard) + ".bin";
  }

  std::uint64_t first_document(std::size_t shard) const { return layout_.table[shard * 8 + 2]; }

  DataError shrunk(std::size_t shard) const {
    return DataError(path(shard) + ": became shorter, or unreadable, while it was being read");
  }

  DataError contradiction(std::size_t shard) const {
    return DataError(path(shard) + ": the table that describes this shard contradicts itself");
  }

  DataError damaged_index(std::size_t shard) const { return DataError(path(shard) + ": its document index is damaged"); }

  // Access to mapped shards: what `at` returned stays mapped for as long as the Reader lives.
  class Reader {
   public:
    explicit Reader(Shards& shards) : shards_(shards), began_(shards.mapped_->enter()) {}
    ~Reader() { shards_.mapped_->leave(began_); }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    const Shard& at(std::size_t shard) {
      auto& slot = shards_.slots_[shard];
      if (const auto* found = slot.load(std::memory_order_acquire)) return *found;
      return shards_.mapped_->add(slot, shards_.open(shard));
    }

   private:
    Shards& shards_;
    const std::uint64_t began_;
  };

  ~Shards() {
    if (generation_ == fork_generation()) mapped_->remove(slots_);
  }
  Shards(const Shards&) = delete;
  Shards& operator=(const Shards&) = delete;

 private:
  // Shards are mostly of one size, so a guess is mostly right; a search follows where it is not.
  std::size_t locate(std::uint64_t item, std::uint64_t total, std::uint64_t Row::*start) const {
    if (layout_.shards == 1) return 0;
    const auto holds = [&](std::size_t shard) {
      return row(shard).*start <= item && (shard + 1 == layout_.shards || item < row(shard + 1).*start);
    };
    const auto share = static_cast<double>(item) / static_cast<double>(total);
    const auto guess = std::min(static_cast<std::size_t>(share * static_cast<double>(layout_.shards)), layout_.shards - 1);
    if (holds(guess)) return guess;
    std::size_t low = 0, high = layout_.shards;  // the last shard that starts at or before `item`; empty ones come earlier
    while (high - low > 1) {
      const auto middle = low + (high - low) / 2;
      if (row(middle).*start <= item) low = middle;
      else high = middle;
    }
    return low;
  }

  std::string index_path(std::size_t shard) const {
    if (!layout_.paths.empty()) return layout_.paths[shard].second;
    return layout_.index_file.empty() ? layout_.directory + "/" + name(shard) + ".idx" : layout_.index_file;
  }

  std::string name(std::size_t shard) const {
    char text[24];
    std::snprintf(text, sizeof text, "%05llu", static_cast<unsigned long long>(row(shard).number));
    return text;
  }

  std::unique_ptr<Shard> open(std::size_t number) const {
    const auto facts = row(number);
    auto shard = std::make_unique<Shard>();
    const auto where = path(number);
    shard->token_file = std::make_unique<Mapping>(where);
    shard->token_width = width(layout_.dtype);
    shard->token_count = facts.tokens;
    const auto bytes = shard->token_file->bytes();
    // Random windows touch a page or two each: reading ahead of them would only waste the disk. We ask ourselves.
    ::madvise(const_cast<std::byte*>(bytes.data()), bytes.size(), MADV_RANDOM);
    const auto frame = token_frame(where, bytes, facts);
    if (frame.kind == 'Z') shard->packed = packed_tokens(where, bytes, frame);
    else shard->tokens = bytes.data() + layout_.header_bytes;
    open_index(*shard, number, facts);
    return shard;
  }

  // The frame of a mapped file. It may shrink, or its disk may fail, at any time: also now.
  static Frame frame_of(const std::string& where, std::span<const std::byte> bytes, char kind) {
    std::array<std::byte, frame_bytes> copy{};
    const auto first = bytes.first(std::min(bytes.size(), copy.size()));
    if (!survives([&] { std::ranges::copy(first, copy.begin()); })) throw DataError(where + ": cannot be read");
    try {
      return parse_frame(std::span(copy).first(first.size()), bytes.size(), kind);
    } catch (const std::exception& error) {
      throw DataError(where + ": " + error.what());
    }
  }

  Frame token_frame(const std::string& where, std::span<const std::byte> bytes, const Row& facts) const {
    if (layout_.header_bytes != 0) {
      const auto frame = frame_of(where, bytes, 'T');
      if (frame.count != facts.tokens || frame.tag != facts.tag || frame.dtype != static_cast<std::uint32_t>(layout_.dtype))
        throw DataError(where + ": is not the shard that the store's table describes");
      return frame;
    }
    if (bytes.size() / width(layout_.dtype) < facts.tokens)
      throw DataError(where + ": holds " + std::to_string(bytes.size()) + " bytes, too few for " +
                      std::to_string(facts.tokens) + " tokens");
    return {};
  }

  // The blocks of a packed shard, whose table fills the file to its end.
  PackedTokens packed_tokens(const std::string& where, std::span<const std::byte> bytes, const Frame& frame) const {
    const PackedTokens packed{bytes.data(), bytes.size(), frame.count, frame.block, width(layout_.dtype)};
    if (packed.blocks() == 0) return packed;
    std::uint64_t end = 0;
    if (!survives([&] { end = packed.end(packed.blocks() - 1); })) throw DataError(where + ": cannot be read");
    if (end != packed.table_start()) throw DataError(where + ": its table of blocks does not agree with its size");
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)), table = packed.table_start() / page * page;
    ::madvise(const_cast<std::byte*>(bytes.data()) + table, bytes.size() - table, MADV_WILLNEED);
    return packed;
  }

  void open_index(Shard& shard, std::size_t number, const Row& facts) const {
    if (layout_.index == IndexKind::none) return;
    const auto where = index_path(number);
    shard.index_file = std::make_unique<Mapping>(where);
    const auto bytes = shard.index_file->bytes();
    shard.document_count = facts.documents;
    if (layout_.index == IndexKind::ends) {
      const bool weighed = layout_.dtype == Dtype::weighted;
      const auto frame = frame_of(where, bytes, weighed ? 'E' : 'D');
      shard.end_words = weighed ? 2 : 1;
      if (frame.count != facts.documents || frame.tag != facts.tag)
        throw DataError(where + ": is not the index that the store's table describes");
      shard.ends = bytes.data() + 64;
      return;
    }
    const auto fits = [&](std::uint64_t offset, std::uint64_t count) {
      return offset <= bytes.size() && count <= (bytes.size() - offset) / 8;
    };
    if (!fits(layout_.pointers_offset, layout_.sequences) || !fits(layout_.boundaries_offset, layout_.boundaries) ||
        layout_.boundaries <= facts.documents)
      throw DataError(where + ": is too short for the index it describes");
    shard.pointers = bytes.data() + layout_.pointers_offset;
    shard.boundaries = bytes.data() + layout_.boundaries_offset;
    shard.sequences = layout_.sequences;
  }

  StoreLayout layout_;
  std::uint64_t tokens_ = 0, documents_ = 0;
  const unsigned generation_ = fork_generation();
  const std::shared_ptr<Mapped> mapped_;
  std::vector<Mapped::Slot> slots_;
};

}  // namespace millstream
