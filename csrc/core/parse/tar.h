// core/parse/tar.h: where the games of an uncompressed tar archive lie, found by its headers alone.
//
// Read are the headers of v7, POSIX (ustar, pax) and GNU tar. An archive is data from elsewhere: every sum is checked,
// nothing outside of the file is believed, and what cannot be read ends the index with its reason. A game is a few
// kilobytes behind its header, so that the end of one (with the size that gzip leaves there) and the header of the next
// lie in one read.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace millstream {

inline constexpr std::uint64_t tar_block = 512;

// Why a member is no game; folders are no loss.
enum class TarSkip : std::uint8_t {
  link, device, sparse, other, hidden, not_data, nameless, too_short, too_large, behind_end, count
};
inline constexpr std::array<const char*, static_cast<std::size_t>(TarSkip::count)> tar_skip_names = {
    "link",     "device",  "sparse",    "unknown kind", "hidden",
    "not data", "no name", "too short", "too large",    "behind the end"};

// The members that hold games, in columns; members that do not, by reason; and why the index ends before the archive.
struct TarIndex {
  std::vector<std::uint64_t> offsets;
  std::vector<std::uint32_t> sizes;
  std::vector<std::uint32_t> inflated;  // as the last four bytes of a gzip member say; the size of a raw one
  std::vector<std::uint8_t> gzip;
  std::array<std::uint64_t, static_cast<std::size_t>(TarSkip::count)> skipped{};
  const char* problem = "";     // "truncated" or "damaged"; the members before it are whole
  std::uint64_t problem_at = 0;
  bool has_end = false;         // the empty block that closes an archive was there, and no other archive behind it
};

// A file, read at any place by any number of threads.
class TarFile {
 public:
  explicit TarFile(int descriptor) : descriptor_(descriptor) {
    struct stat status;
    if (fstat(descriptor, &status) != 0) throw std::system_error(errno, std::generic_category());
    size_ = static_cast<std::uint64_t>(std::max<off_t>(status.st_size, 0));
  }
  std::uint64_t size() const { return size_; }

  // Fills the front of `out`; less than all of it only at the end of the file.
  std::size_t read(std::uint64_t at, std::span<std::uint8_t> out) const {
    std::size_t done = 0;
    while (done < out.size()) {
      const auto got = pread(descriptor_, out.data() + done, out.size() - done, static_cast<off_t>(at + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw std::system_error(errno, std::generic_category());
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  }

 private:
  int descriptor_;
  std::uint64_t size_;
};

namespace tar_detail {

using Bytes = std::span<const std::uint8_t>;

inline constexpr std::uint64_t most_extended = 1 << 20;  // bytes of a long name, or of what pax says
inline constexpr std::uint64_t most_empty = 1 << 26;     // bytes behind an end that are looked through for a header

inline bool is_empty(Bytes block) {
  return std::all_of(block.begin(), block.end(), [](auto each) { return each == 0; });
}

// Octal digits between blanks, or with the first bit set a binary number; nothing where it is neither, or above 2^63.
inline std::optional<std::uint64_t> number(Bytes field) {
  std::uint64_t value = 0;
  if (field[0] & 0x80) {
    if (field[0] != 0x80) return std::nullopt;  // negative, or more than 2^87
    for (const auto each : field.subspan(1)) {
      if (value >> 55) return std::nullopt;
      value = value << 8 | each;
    }
    return value;
  }
  std::size_t i = 0;
  while (i < field.size() && field[i] == ' ') ++i;
  for (; i < field.size() && field[i] >= '0' && field[i] <= '7'; ++i) value = value << 3 | (field[i] & 7u);
  if (i < field.size() && field[i] != ' ' && field[i] != 0) return std::nullopt;
  return value;  // eleven or twelve digits: far below 2^63
}

inline std::string_view text(Bytes field) {
  const auto end = std::find(field.begin(), field.end(), 0);
  return {reinterpret_cast<const char*>(field.data()), static_cast<std::size_t>(end - field.begin())};
}

// Old archives add up signed bytes.
inline bool sums_up(Bytes header) {
  const auto told = number(header.subspan(148, 8));
  std::uint64_t plain = 8 * ' ';
  std::int64_t signed_sum = 8 * ' ';
  for (std::size_t i = 0; i < tar_block; ++i) {
    if (i >= 148 && i < 156) continue;
    plain += header[i];
    signed_sum += static_cast<std::int8_t>(header[i]);
  }
  return told && (*told == plain || static_cast<std::int64_t>(*told) == signed_sum);
}

// What extended headers say of a member: of one, or of all that follow.
struct Extended {
  std::optional<std::string> name;
  std::optional<std::uint64_t> size;
  bool sparse = false;
};

inline std::optional<std::uint64_t> decimal(std::string_view digits) {
  if (digits.empty() || digits.size() > 18) return std::nullopt;
  std::uint64_t value = 0;
  for (const char each : digits) {
    if (each < '0' || each > '9') return std::nullopt;
    value = value * 10 + static_cast<std::uint64_t>(each - '0');
  }
  return value;
}

// Records "length key=value\n"; false where they are none.
inline bool read_pax(std::string_view records, Extended& says) {
  while (!records.empty() && records[0] != '\0') {
    const auto blank = records.find(' ');
    if (blank == records.npos) return false;
    const auto length = decimal(records.substr(0, blank));
    if (!length || *length < blank + 3 || *length > records.size() || records[*length - 1] != '\n') return false;
    const auto record = records.substr(blank + 1, *length - blank - 2);
    const auto equals = record.find('=');
    if (equals == record.npos) return false;
    const auto key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") says.name = value;
    if (key == "size" && !(says.size = decimal(value))) return false;
    if (key.starts_with("GNU.sparse.")) says.sparse = true;
    records.remove_prefix(*length);
  }
  return true;
}

inline bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](auto each) { return name.ends_with(each); });
}

// Why a regular file of this name is no game; nothing if it may be one.
inline std::optional<TarSkip> not_a_game(std::string_view base) {
  if (base.empty()) return TarSkip::nameless;
  if (base[0] == '.') return TarSkip::hidden;
  const auto stem = base.substr(0, base.find('.'));
  if (stem == "LICENSE" || stem == "README" || stem == "COPYING" || stem == "NOTICE") return TarSkip::not_data;
  if (ends_with_any(base, {".txt", ".md", ".json", ".pgn", ".html"})) return TarSkip::not_data;
  return std::nullopt;
}

}  // namespace tar_detail

// Reads one archive. `File` has size() and read(at, out), as TarFile does.
template <typename File>
class TarReader {
 public:
  // Members of more than `most_bytes` are no games.
  explicit TarReader(const File& file, std::uint32_t most_bytes = std::numeric_limits<std::uint32_t>::max())
      : file_(file), most_bytes_(most_bytes), buffer_(most_ahead) {}

  TarIndex index() {
    while (step()) {
    }
    return std::move(index_);
  }

 private:
  using Bytes = tar_detail::Bytes;
  static constexpr std::size_t most_ahead = 1 << 16;
  static constexpr std::size_t least_ahead = 1 << 12;

  // Looks at the header at `at_`; false at the end. Every step moves forward by a block at least.
  bool step() {
    if (at_ >= file_.size()) return false;  // some writers leave out the end
    const auto seen = window(at_, tar_block);
    if (seen.size() < tar_block || file_.size() - at_ < tar_block) return stop("truncated");
    if (tar_detail::is_empty(seen)) return goes_on();
    if (!tar_detail::sums_up(seen)) return stop("damaged");
    std::array<std::uint8_t, tar_block> header;  // the window may move
    std::copy(seen.begin(), seen.end(), header.begin());
    const auto told = tar_detail::number(Bytes(header).subspan(124, 12));
    if (!told) return stop("damaged");
    const char kind = static_cast<char>(header[156]);
    if (std::string_view("xXgLK").find(kind) != std::string_view::npos) return extended(kind, *told);
    const bool has_data = kind < '1' || kind > '6';  // links, devices and folders have none, whatever they say
    return member(header, kind, has_data ? next_.size.value_or(all_.size.value_or(*told)) : 0);
  }

  // Archives may be written one behind the other (`cat a.tar b.tar`): whether a header follows the end at `at_`. Bytes
  // that are none are counted as one member, since nothing says what they were.
  bool goes_on() {
    const auto limit = std::min(file_.size(), at_ + tar_detail::most_empty);
    next_ = {};
    all_ = {};
    ahead_ = most_ahead;
    Bytes seen;
    for (; at_ < limit; at_ += tar_block) {
      seen = window(at_, std::min(tar_block, file_.size() - at_));
      if (!tar_detail::is_empty(seen)) break;
    }
    if (at_ < limit && seen.size() == tar_block && tar_detail::sums_up(seen)) return true;
    index_.has_end = true;
    if (at_ < file_.size()) skip(TarSkip::behind_end);
    return false;
  }

  bool extended(char kind, std::uint64_t size) {
    if (size > tar_detail::most_extended) return stop("damaged");
    const auto data = at_ + tar_block;
    std::string said(size, '\0');
    if (size > file_.size() - data || file_.read(data, {reinterpret_cast<std::uint8_t*>(said.data()), size}) < size)
      return stop("truncated");
    if (kind == 'L') next_.name = said.substr(0, said.find('\0'));
    if ((kind == 'x' || kind == 'X') && !tar_detail::read_pax(said, next_)) return stop("damaged");
    if (kind == 'g' && !tar_detail::read_pax(said, all_)) return stop("damaged");
    at_ = behind(data, size);
    return true;
  }

  bool member(Bytes header, char kind, std::uint64_t size) {
    auto data = at_ + tar_block;
    if (kind == 'S' && header[482]) {  // the map of an old sparse file continues in blocks of its own
      for (bool more = true; more; data += tar_block) {
        const auto map = window(data, tar_block);
        if (map.size() < tar_block) return stop("truncated");
        more = map[504] != 0;
      }
    }
    if (data > file_.size() || size > file_.size() - data) return stop("truncated");
    const auto name = base_name(header);
    const bool regular = kind == '0' || kind == '\0' || kind == '7';
    const bool folder = kind == '5' || (regular && size == 0 && is_named_as_folder(header));
    const bool sparse = kind == 'S' || next_.sparse || all_.sparse;
    if (folder) next_ = {};
    else if (kind == '1' || kind == '2') skip(TarSkip::link);
    else if (kind == '3' || kind == '4' || kind == '6') skip(TarSkip::device);
    else if (sparse) skip(TarSkip::sparse);
    else if (!regular) skip(TarSkip::other);
    else if (const auto why = tar_detail::not_a_game(name)) skip(*why);
    else if (!keep(data, size, name.ends_with(".gz"))) return stop("truncated");
    next_ = {};
    at_ = behind(data, size);
    return true;
  }

  // False if the file became shorter meanwhile.
  bool keep(std::uint64_t data, std::uint64_t size, bool gzip) {
    if (size < (gzip ? 18u : 4u)) return skip(TarSkip::too_short);
    if (size > most_bytes_) return skip(TarSkip::too_large);
    auto inflated = static_cast<std::uint32_t>(size);
    if (gzip) {
      ahead_ = size < most_ahead / 8 ? most_ahead : least_ahead;
      const auto trailer = window(data + size - 4, 4);
      if (trailer.size() < 4) return false;
      inflated = trailer[0] | trailer[1] << 8 | trailer[2] << 16 | static_cast<std::uint32_t>(trailer[3]) << 24;
    }
    index_.offsets.push_back(data);
    index_.sizes.push_back(static_cast<std::uint32_t>(size));
    index_.inflated.push_back(inflated);
    index_.gzip.push_back(gzip);
    return true;
  }

  std::string_view full_name(Bytes header) const {
    const auto& said = next_.name ? next_.name : all_.name;
    return said ? std::string_view(*said) : tar_detail::text(header.first(100));
  }

  // Old archives know no folders but by their names.
  bool is_named_as_folder(Bytes header) const {
    const auto name = full_name(header);
    return name.empty() || name.back() == '/';
  }

  // The last part of the name. The prefix of a header would only add folders.
  std::string_view base_name(Bytes header) const {
    auto name = full_name(header);
    while (name.ends_with('/')) name.remove_suffix(1);
    return name.substr(name.find_last_of('/') + 1);
  }

  // So many bytes of the file, or what there is of them; valid until the next call.
  Bytes window(std::uint64_t at, std::size_t size) {
    if (at < start_ || at - start_ > filled_ || filled_ - (at - start_) < size) {
      start_ = at;
      filled_ = file_.read(at, std::span(buffer_).first(std::max(ahead_, size)));
    }
    const auto from = static_cast<std::size_t>(at - start_);
    return Bytes(buffer_).subspan(from, std::min(size, filled_ - from));
  }

  std::uint64_t behind(std::uint64_t data, std::uint64_t size) const {
    return data + (size + tar_block - 1) / tar_block * tar_block;  // the size lies in the file: no overflow
  }

  bool skip(TarSkip why) {
    ++index_.skipped[static_cast<std::size_t>(why)];
    return true;
  }

  bool stop(const char* problem) {
    index_.problem = problem;
    index_.problem_at = at_;
    return false;
  }

  const File& file_;
  std::uint32_t most_bytes_;
  std::vector<std::uint8_t> buffer_;
  std::uint64_t start_ = 0;
  std::size_t filled_ = 0;
  std::size_t ahead_ = least_ahead;
  std::uint64_t at_ = 0;
  tar_detail::Extended next_, all_;
  TarIndex index_;
};

}  // namespace millstream
