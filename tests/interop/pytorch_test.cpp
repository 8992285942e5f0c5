// The functions for PyTorch's pluggable allocator: null instead of exceptions, and blocks that wait for the stream on
// which they were freed.
#include "memsaver/interop/pytorch.hpp"
#include "support/machines.hpp"

#include <sys/types.h>

namespace interop_pytorch_test {
using namespace test;

// A program's own functions, which PyTorch loads by name from a library, using state that the program keeps.
std::optional<Arena> engine_arena;

extern "C" void* engine_allocate(ssize_t bytes, int device, CUstream_st* stream) {
    return pytorch_allocate(*engine_arena, bytes, device, stream);
}
extern "C" void engine_deallocate(void* pointer, ssize_t bytes, int device, CUstream_st* stream) {
    pytorch_deallocate(*engine_arena, pointer, bytes, device, stream);
}

TEST_CASE_FIXTURE(OnSaver, "memory that comes through the two functions is paused and resumed" * on_machines) {
    engine_arena = saver.arena("torch", HostBackup{});
    void* (*const allocate)(ssize_t, int, CUstream_st*) = engine_allocate;
    void (*const deallocate)(void*, ssize_t, int, CUstream_st*) = engine_deallocate;

    void* const tensor = allocate(3_MiB, 0, nullptr);
    void* const small = allocate(1, 0, nullptr);
    REQUIRE(tensor != nullptr);
    REQUIRE(small != nullptr);
    CHECK(address_of(small) % 256 == 0);
    write_pattern(machine.driver, tensor, 3_MiB, 7);
    saver.pause("torch");
    CHECK(row_of(saver, "torch").state == "paused");
    deallocate(small, 1, 0, nullptr); // while it is paused
    CHECK(row_of(saver, "torch").blocks == 1);
    saver.resume("torch");
    CHECK(has_pattern(machine.driver, tensor, 3_MiB, 7));
    deallocate(tensor, 3_MiB, 0, nullptr);
    CHECK(row_of(saver, "torch").blocks == 0);
    engine_arena.reset();
}

TEST_CASE_FIXTURE(OnSaver, "a failed allocation is null, and the sink is told why" * on_machines) {
    const Arena arena = saver.arena("torch", Discard{}, {.capacity = 64_MiB});
    Told told;

    CHECK(pytorch_allocate(arena, 0, 0, {}, told.sink()) == nullptr); // an empty tensor, not a failure
    CHECK(told.texts().empty());
    CHECK(pytorch_allocate(arena, 128_MiB, 0, {}, told.sink()) == nullptr);
    REQUIRE(told.texts().size() == 1);
    CHECK(contains(told.texts().back(), "torch"));

    CHECK(pytorch_allocate(arena, 1_MiB, 1, {}, told.sink()) == nullptr); // another device's memory
    REQUIRE(told.texts().size() == 2);
    CHECK(contains(told.texts().back(), "device 1"));

    saver.close();
    CHECK(pytorch_allocate(arena, 1, 0, {}, told.sink()) == nullptr);
    CHECK(told.texts().size() == 3);
}

TEST_CASE_FIXTURE(OnTold, "freeing never throws; errors are reported to the sink" * on_machines) {
    const Arena arena = saver.arena("torch");
    const Arena other = saver.arena("other");
    void* const block = arena.allocate(1_MiB);
    pytorch_deallocate(arena, nullptr, 0, 0, {});
    pytorch_deallocate(arena, block, 1_MiB, 0, {});
    CHECK(told.texts().empty());
    pytorch_deallocate(arena, block, 1_MiB, 0, {}); // again
    CHECK(told.texts().size() == 1);

    // With a whole saver, the address identifies the tag.
    void* const first = arena.allocate(1_MiB);
    void* const second = other.allocate(1_MiB);
    Told asked;
    pytorch_deallocate(saver, first, 1_MiB, 0, {}, asked.sink());
    pytorch_deallocate(saver, second, 1_MiB, 0, {}, asked.sink());
    pytorch_deallocate(saver, nullptr, 0, 0, {}, asked.sink());
    CHECK(asked.texts().empty());
    CHECK(arena.usage().blocks == 0);
    CHECK(other.usage().blocks == 0);
    int foreign = 0;
    pytorch_deallocate(saver, &foreign, 4, 0, {}, asked.sink());
    CHECK(asked.texts().size() == 1);

    void* const late = arena.allocate(1_MiB);
    saver.close();
    pytorch_deallocate(arena, late, 1_MiB, 0, {});
    CHECK(told.texts().size() == 1); // reports nothing, like all owners after close
}

TEST_CASE_FIXTURE(OnMachine, "a freed block is used again only when its stream has passed, whatever the others do") {
    HeldStream mine{host_of(machine.driver)};
    HeldStream other{host_of(machine.driver)};
    {
        MemorySaver saver{machine.driver};
        const Arena arena = saver.arena("torch");
        void* const block = pytorch_allocate(arena, 2_MiB, 0, mine.as_cuda());
        pytorch_deallocate(arena, block, 2_MiB, 0, mine.as_cuda());
        CHECK(pytorch_allocate(arena, 2_MiB, 0, mine.as_cuda()) != block);
        mine.finish();
        std::set<void*> later;
        for (int i = 0; i < 64; ++i) later.insert(pytorch_allocate(arena, 2_MiB, 0, other.as_cuda()));
        CHECK(later.contains(block)); // while the other stream is still held
        other.finish();
    }
}
} // namespace interop_pytorch_test
