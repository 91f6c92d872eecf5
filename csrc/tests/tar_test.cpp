// tests/tar_test.cpp: every member of an archive is found where it lies; no bytes lead the index astray.
#include "core/parse/tar.h"

#include <cstdio>
#include <string>

#include "check.h"
#include "random.h"

namespace {

using namespace millstream;

struct Memory {
  std::string bytes;
  std::uint64_t size() const { return bytes.size(); }
  std::size_t read(std::uint64_t at, std::span<std::uint8_t> out) const {
    if (at >= bytes.size()) return 0;
    const auto size = std::min<std::size_t>(out.size(), bytes.size() - at);
    std::memcpy(out.data(), bytes.data() + at, size);
    return size;
  }
};

TarIndex index_of(const std::string& bytes) {
  const Memory memory{bytes};
  return TarReader(memory).index();
}

void seal(std::string& header) {
  header.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (const char each : header) sum += static_cast<unsigned char>(each);
  char digits[8];
  std::snprintf(digits, sizeof digits, "%06o", sum);
  header.replace(148, 7, digits, 7);
}

std::string header(const std::string& name, std::uint64_t size, char kind = '0') {
  std::string block(tar_block, '\0');
  block.replace(0, name.size(), name);
  char digits[13];
  std::snprintf(digits, sizeof digits, "%011lo", static_cast<unsigned long>(size));
  block.replace(124, 12, digits, 12);
  block[156] = kind;
  seal(block);
  return block;
}

std::string padded(std::string data) {
  data.resize((data.size() + tar_block - 1) / tar_block * tar_block);
  return data;
}

std::string member(const std::string& name, const std::string& data, char kind = '0') {
  return header(name, data.size(), kind) + padded(data);
}

std::string end() { return std::string(2 * tar_block, '\0'); }

std::string game(std::size_t size, std::uint32_t inflated) {
  std::string data(size, 'g');
  for (std::size_t i = 0; i < 4; ++i) data[size - 4 + i] = static_cast<char>(inflated >> (8 * i));
  return data;
}

void games_are_found_whatever_stands_between_them() {
  const std::string pax = "21 path=a/b/c/d/e.gz\n";
  const auto tar = member("games/", "", '5') + member("LICENSE", "free") + member("games/0.gz", game(700, 83560)) +
                   member("././@LongLink", std::string(300, 'n') + ".gz\0", 'L') + member("cut", game(20, 7)) +
                   member("x", pax, 'x') + member("e", game(512, 9)) + member("raw", "12345678") +
                   header("l", 99, '2') + member(".hidden.gz", game(30, 1)) +
                   member("tiny.gz", "123") + member("odd", "12345", 'Q') + end();
  const auto index = index_of(tar);
  CHECK(index.has_end && std::string(index.problem).empty());
  CHECK((index.inflated == std::vector<std::uint32_t>{83560, 7, 9, 8}));
  CHECK((index.gzip == std::vector<std::uint8_t>{1, 1, 1, 0}));
  CHECK((index.sizes == std::vector<std::uint32_t>{700, 20, 512, 8}));
  CHECK(tar.substr(index.offsets[3], 8) == "12345678");
  for (const auto why :
       {TarSkip::link, TarSkip::hidden, TarSkip::not_data, TarSkip::too_short, TarSkip::other})
    CHECK(index.skipped[static_cast<std::size_t>(why)] == 1);
}

void sizes_may_be_binary_or_end_with_a_blank() {
  auto binary = header("0.gz", 0), blank = header("1.gz", 0);
  binary.replace(124, 12, std::string("\x80\0\0\0\0\0\0\0\0\0\0\x20", 12));
  blank.replace(124, 12, "         40 ");
  seal(binary), seal(blank);
  const auto index = index_of(binary + padded(game(32, 5)) + blank + padded(game(32, 6)) + end());
  CHECK((index.inflated == std::vector<std::uint32_t>{5, 6}));
}

void sparse_files_are_passed_over_with_their_maps() {
  auto sparse = header("s.gz", 600, 'S');
  sparse[482] = 1;
  seal(sparse);
  std::string more(tar_block, 'm'), last(tar_block, '\0');
  const auto tar = sparse + more + last + std::string(1024, 'd') + member("0.gz", game(32, 5)) +
                   member("x", "22 GNU.sparse.major=1\n", 'x') + member("t.gz", game(32, 6)) + end();
  const auto index = index_of(tar);
  CHECK(index.inflated == std::vector<std::uint32_t>{5});
  CHECK(index.skipped[static_cast<std::size_t>(TarSkip::sparse)] == 2 && index.has_end);
}

void sizes_that_lead_out_of_the_file_end_the_index() {
  const auto good = member("0.gz", game(32, 5));
  for (const auto& size :
       {std::string("\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 12), std::string(12, '\xff'),
        std::string("777777777777"),
        std::string("\x80\0\0\1\0\0\0\0\0\0\0\0", 12), std::string("12x         ")}) {
    auto far = header("1.gz", 0);
    far.replace(124, 12, size);
    seal(far);
    const auto index = index_of(good + far + end());
    CHECK(index.sizes.size() == 1 && index.problem_at == good.size() && *index.problem);
  }
  const auto index = index_of(good + member("x", "30 size=999999999999999999999\n", 'x') + good + end());
  CHECK(std::string(index.problem) == "damaged");
}

void a_cut_archive_keeps_its_whole_members() {
  std::string tar;
  for (int i = 0; i < 5; ++i) tar += member(std::to_string(i) + ".gz", game(900, 8356));
  tar += end();
  for (std::size_t size = 0; size < tar.size(); size += 7) {
    const auto index = index_of(tar.substr(0, size));
    const auto whole = std::min<std::size_t>(5, size / 1536 + (size % 1536 >= 1412));
    CHECK(index.sizes.size() == whole);
    CHECK(index.has_end == (size >= 5 * 1536 + 512));
  }
}

void archives_may_lie_one_behind_the_other() {
  const auto first = member("g", "15 path=all.gz\n", 'g') + member("0.gz", game(32, 5)) + end();
  const auto second = member("1", "12345678") + std::string(20 * tar_block, '\0');
  const auto both = index_of(end() + first + second);
  CHECK((both.inflated == std::vector<std::uint32_t>{5, 8}) && both.has_end && !*both.problem);
  CHECK((both.gzip == std::vector<std::uint8_t>{1, 0}));  // what the first says of all its members ends with it
  const auto cut = index_of(first + second.substr(0, 515));
  CHECK(cut.sizes.size() == 1 && !cut.has_end && cut.problem_at == first.size());
  const auto open = index_of(first + second.substr(0, 1024));
  CHECK(open.sizes.size() == 2 && !open.has_end && !*open.problem);
}

void what_lies_behind_the_end_and_is_no_header_is_counted_once() {
  const auto tar = member("0.gz", game(32, 5)) + end();
  const std::string far(tar_detail::most_empty, '\0');
  for (const auto& rest : {std::string("x"), std::string(5000, 'x'), std::string(700, '\0') + "x", far}) {
    const auto index = index_of(tar + rest);
    CHECK(index.sizes.size() == 1 && index.has_end && !*index.problem);
    CHECK(index.skipped[static_cast<std::size_t>(TarSkip::behind_end)] == 1);
  }
  CHECK(index_of(tar + std::string(700, '\0')).skipped == index_of(tar).skipped);
}

void a_regular_member_with_bytes_is_no_folder_whatever_its_name() {
  const auto tar = member("old/", "") + member("", "") + member("a/b.gz/", game(32, 5)) + member("", "12345678") +
                   member("//", "12345678") + end();
  const auto index = index_of(tar);
  CHECK(index.inflated == std::vector<std::uint32_t>{5});
  CHECK(index.skipped[static_cast<std::size_t>(TarSkip::nameless)] == 2);
  CHECK(index.skipped[static_cast<std::size_t>(TarSkip::hidden)] == 0);
}

void noise_never_leads_astray() {
  Random random;
  const auto seed = member("d/", "", '5') + member("0.gz", game(700, 83560)) +
                    member("x", "21 path=a/b/c/d/e.gz\n", 'x') + member("e", game(5000, 9)) +
                    member("n", "name.gz", 'L') + member("f", game(20, 9)) + end();
  for (int round = 0; round < 3000; ++round) {
    auto tar = seed;
    for (auto left = random.between(1, 4); left; --left)
      tar[random.below(tar.size())] = static_cast<char>(random.word());
    if (random.chance(3)) tar.resize(random.below(tar.size()));
    for (std::size_t at = 0; at + tar_block <= tar.size(); at += tar_block) {  // so that damage gets past the checksum
      auto block = tar.substr(at, tar_block);
      if (block[0] && random.chance(2)) seal(block), tar.replace(at, tar_block, block);
    }
    const auto index = index_of(tar);
    for (std::size_t i = 0; i < index.offsets.size(); ++i) CHECK(index.offsets[i] + index.sizes[i] <= tar.size());
  }
}

}  // namespace

int main() {
  games_are_found_whatever_stands_between_them();
  sizes_may_be_binary_or_end_with_a_blank();
  sparse_files_are_passed_over_with_their_maps();
  sizes_that_lead_out_of_the_file_end_the_index();
  a_cut_archive_keeps_its_whole_members();
  archives_may_lie_one_behind_the_other();
  what_lies_behind_the_end_and_is_no_header_is_counted_once();
  a_regular_member_with_bytes_is_no_folder_whatever_its_name();
  noise_never_leads_astray();
}
