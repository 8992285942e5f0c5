// Transfers on a GPU: work that follows one range runs once that range has arrived, before the rest has.
#include "backup/transfer_support.hpp"
#include "gpu/gpu_support.hpp"
#include "support/machines.hpp"

namespace gpu_transfer_test {
using namespace gpu_test;
using transfer_test::PlainBytes;
using transfer_test::Shelf;

/// As long as it lives, copies to `from` and to all later addresses wait for the program's gate.
struct Held {
    Held(const Watched& driver, Program& program, StreamRef lane, Address from) : driver_{driver}, program_{program} {
        program_.shut_gate();
        driver_.on_call(
            [&program, lane, from, held = std::make_shared<std::atomic<bool>>(false)](const CallRecord& call) {
                if (call.call != Call::copy_to_device || call.address < from || held->exchange(true)) return;
                program.hold(native(lane));
            });
    }
    ~Held() {
        driver_.on_call({});
        program_.open_gate();
    }

private:
    Watched driver_;
    Program& program_;
};

/// Memory whose bytes have been saved and then changed.
constexpr std::size_t part = 1_MiB;
constexpr auto part_words = static_cast<std::uint32_t>(part / sizeof(std::uint32_t));
constexpr std::uint64_t saved_seed = 1;
constexpr std::uint64_t other_seed = 2;

void* pointer(Address address) { return reinterpret_cast<void*>(address); }

/// Returns whether a part equals its saved bytes plus one: the kernel ran after the bytes had arrived, and once.
bool one_more(const Watched& driver, std::size_t offset, std::size_t bytes, Address memory) {
    const auto all = test::pattern(bytes, saved_seed);
    std::vector<std::uint32_t> expected(part_words);
    std::memcpy(expected.data(), all.data() + offset, part);
    for (std::uint32_t& word : expected) ++word;
    const auto found = test::read_bytes(driver, pointer(memory + offset), part);
    return std::memcmp(found.data(), expected.data(), part) == 0;
}

/// Starts `in`, with all copies except those of the first piece held, and follows its first and its last bytes.
void follow_first_and_last(Program& program, const Watched& driver, Transfer& in, bool direct, CUstream lane,
                           Address memory, std::size_t bytes, Address second_piece) {
    const Address last = memory + bytes - part;
    const Held held{driver, program, lane, second_piece};
    in.start();
    REQUIRE(in.follow(program.stream, {memory, part}).ok());
    program.add_one(program.stream, pointer(memory), part_words);
    // Returns, because the stream waits for nothing else.
    must(program.native.stream_synchronize(program.stream), "cuStreamSynchronize");
    CHECK_FALSE(program.idle(lane)); // otherwise the gate was not shut
    bool done = true;
    CHECK(in.query(done).ok());
    CHECK_FALSE(done);
    CHECK(one_more(driver, 0, bytes, memory));

    if (direct) { // the other one waits here, and not on the stream
        REQUIRE(in.follow(program.other_stream, {last, part}).ok());
        program.add_one(program.other_stream, pointer(last), part_words);
        CHECK_FALSE(program.idle(program.other_stream));
        program.open_gate();
    } else {
        program.open_gate();
        REQUIRE(in.follow(program.other_stream, {last, part}).ok());
        program.add_one(program.other_stream, pointer(last), part_words);
    }
    must(program.native.stream_synchronize(program.other_stream), "cuStreamSynchronize");
    CHECK(one_more(driver, bytes - part, bytes, memory));
    CHECK(in.wait().ok());
    CHECK(in.query(done).ok());
    CHECK(done);
    CHECK(in.follow(program.stream, {1, 1}).ok()); // none of its bytes: nothing to wait for
}

/// Saves `memory` by a transfer of `make(direction)`, overwrites it, and lets streams follow the restore.
template <class Make>
void save_and_follow(Program& program, const Watched& driver, const PlainBytes<Watched>& memory, std::size_t bytes,
                     Address second_piece, bool direct, const Make& make) {
    test::write_pattern(driver, pointer(memory.address()), bytes, saved_seed);
    const auto out = make(Direction::out);
    out->start();
    REQUIRE(out->wait().ok());
    test::write_pattern(driver, pointer(memory.address()), bytes, other_seed);

    CUstream on = native(CopyLane{driver, Direction::in}.stream());
    const auto in = make(Direction::in);
    follow_first_and_last(program, driver, *in, direct, on, memory.address(), bytes, second_piece);
}

detail::Vector<Piece> cut(Address memory, std::uint64_t location, std::size_t bytes, std::size_t cell) {
    return cut_into_pieces({{memory, location, bytes}}, cell, [](const Unit&, const Unit&) { return false; });
}

TEST_CASE_FIXTURE(OnGpu, "Direct transfer: a stream follows a range") {
    constexpr std::size_t bytes = HostCells::cell_bytes + 8_MiB; // at least two cells, wherever it begins
    const PlainBytes memory{books.driver, bytes};
    const auto region = std::make_shared<HostCells>(books.driver, bytes);
    detail::Vector<Piece> pieces = cut(memory.address(), region->address(), bytes, HostCells::cell_bytes);
    for (Piece& piece : pieces) piece.pages = region;
    REQUIRE(pieces.size() >= 2);
    const auto make = [&](Direction direction) {
        return direct_transfer({books.driver, direction, {.threads = 2}, nullptr, {}, {}}, pieces);
    };
    save_and_follow(program, books.driver, memory, bytes, pieces[1].units.front().device, true, make);
}

TEST_CASE_FIXTURE(OnGpu, "Staged transfer: a stream follows a range") {
    constexpr std::size_t bytes = 8_MiB; // four buffers
    const PlainBytes memory{books.driver, bytes};
    const auto ring = std::make_shared<Ring>(books.driver, Ring::Shape{4_MiB, 1, 32_MiB});
    const Shelf shelf{bytes};
    const detail::Vector<Piece> pieces = cut(memory.address(), 0, bytes, ring->buffer_bytes());
    REQUIRE(pieces.size() == 4);
    const auto make = [&](Direction direction) {
        return staged_transfer({books.driver, direction, {.threads = 1}, nullptr, {}, {}}, pieces, shelf, ring);
    };
    save_and_follow(program, books.driver, memory, bytes, pieces[1].units.front().device, false, make);
}
} // namespace gpu_transfer_test
