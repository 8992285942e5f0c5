// The message of an invalid deallocation describes the pointer.
#include "memsaver/heap/block_allocator.hpp"

#include <doctest/doctest.h>

#include <string>

namespace heap_misplaced_test {

using namespace memsaver;
using namespace memsaver::detail;

constexpr Address base = 0x10000;

std::string text(const BlockAllocator& blocks, Address address, Address internal = 0) {
    try {
        raise_misplaced(blocks, address, blocks.find(address), "kv", [&](Address at) { return at == internal; });
    } catch (const Misuse& error) {
        return error.what();
    }
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("raise_misplaced: freed before, inside a block, or nothing at all") {
    BlockAllocator blocks;
    blocks.add({base, 16 * 256});
    REQUIRE(blocks.allocate(1024, 256, 1000)->address == base);
    REQUIRE(blocks.allocate(512, 256, 512)->address == base + 1024);
    blocks.mark_freed(*blocks.find(base + 1024));

    CHECK(text(blocks, base + 1024) == "deallocate(0x10400) in tag \"kv\": this block of 512 B was freed before");
    const std::string inside = text(blocks, base + 1);
    CHECK(has(inside,
              "deallocate(0x10001) in tag \"kv\": the pointer lies inside a block of 1000 B that starts at 0x10000"));
    CHECK(has(text(blocks, base + 1023), "lies inside a block"));
    const std::string nothing = "no block of this tag starts here; it may have been freed before";
    CHECK(has(text(blocks, base + 1024 + 1), nothing)); // inside a freed block
    CHECK(has(text(blocks, base + 2048), nothing));
    CHECK(has(text(blocks, base - 1), nothing));
    CHECK(has(text(blocks, base + 1, base), nothing)); // inside memory that is not the program's
}

} // namespace heap_misplaced_test
