// Progress of the host link on a GPU while streams wait: copies by a kernel, and bytes read from a file while streams
// and graphs wait at gates. The test's time limit ends a deadlock.
#include "backup/file_source_support.hpp"
#include "gpu/gpu_support.hpp"
#include "memsaver/share/staging.hpp"
#include "support/machines.hpp"

namespace gpu_link_test {
using namespace gpu_test;

std::vector<std::uint32_t> words_of(const std::vector<unsigned char>& bytes, std::uint32_t more) {
    std::vector<std::uint32_t> words(bytes.size() / sizeof(std::uint32_t));
    std::memcpy(words.data(), bytes.data(), bytes.size());
    for (std::uint32_t& word : words) word += more;
    return words;
}

TEST_CASE_FIXTURE(
    OnGpu,
    "copy_by_kernel: loaded in an open capture, both ways bit-identical, while a kernel of another stream runs") {
    const Watched& driver = books.driver;
    constexpr std::size_t bytes = 65_MiB + 35;
    Address device = 0;
    REQUIRE(driver.allocate_plain(66_MiB, device).ok());
    {
        GraphRef graph;
        REQUIRE(driver.begin_capture(program.other_stream, CaptureMode::global).ok());
        CHECK(driver.copy_by_kernel(0, 0, 0, {}).ok());
        REQUIRE(driver.end_capture(program.other_stream, graph).ok());
        REQUIRE(driver.close_graph(graph).ok());

        PinnedBuffer host;
        REQUIRE(host.take(AnyDriver{driver}, 66_MiB).ok());
        REQUIRE(host.pinned());
        const auto pages = reinterpret_cast<Address>(host.data());
        OwnedStream stream;
        OwnedEvent mark;
        REQUIRE(stream.open(AnyDriver{driver}).ok());
        REQUIRE(mark.open(AnyDriver{driver}, stream.get()).ok());
        const auto pass = [&] { return driver.record(mark.get(), stream.get()).ok() && driver.wait(mark.get()).ok(); };
        void* const there = reinterpret_cast<void*>(device);
        const auto expected = test::pattern(66_MiB, 1);
        test::write_bytes(driver, there, expected);
        std::memset(host.data(), 9, 66_MiB);
        program.shut_gate();
        program.wait_and_store(program.stream, nullptr, 0);
        REQUIRE(driver.copy_by_kernel(pages + 64, device + 32, bytes, stream.get()).ok());
        REQUIRE(pass());
        CHECK(std::memcmp(host.data() + 64, expected.data() + 32, bytes) == 0);
        CHECK(host.data()[63] == std::byte{9});
        CHECK(host.data()[64 + bytes] == std::byte{9});
        REQUIRE(driver.fill(device, 0, 66_MiB, stream.get()).ok());
        REQUIRE(driver.copy_by_kernel(device + 32, pages + 64, bytes, stream.get()).ok());
        REQUIRE(pass());
        CHECK_FALSE(program.idle(program.stream)); // the launches have not waited for it
        program.open_gate();
        program.synchronize();
        auto wanted = std::vector<unsigned char>(66_MiB, 0);
        std::memcpy(wanted.data() + 32, expected.data() + 32, bytes);
        CHECK(test::read_bytes(driver, there, 66_MiB) == wanted);
    }
    REQUIRE(driver.free_plain(device).ok());
}

TEST_CASE("hashes by a kernel are those of the host") {
    const Ledgered books;
    const Watched& driver = books.driver;
    Address device = 0;
    constexpr std::size_t bytes = 65_MiB + 4321;
    REQUIRE(driver.allocate_plain(66_MiB, device).ok());
    test::write_bytes(driver, reinterpret_cast<void*>(device), test::pattern(66_MiB, 3));
    const std::vector<Range> ranges{{device, bytes}, {device + 16, 64_KiB}, {device + 8, 1_MiB}, {device, 100}};
    const auto by_host = detail::hashes_of(AnyDriver{driver}, ranges, 1_GiB);
    CHECK(driver.calls(Call::run_kernel) == 0);
    CHECK(detail::hashes_of(AnyDriver{driver}, ranges, 0) == by_host);
    CHECK(driver.calls(Call::run_kernel) == 2);
    REQUIRE(driver.free_plain(device).ok());
}

TEST_CASE_FIXTURE(OnGpu,
                  "gates on a GPU: bytes come out of a file although every queue of the device stands at their gate") {
    constexpr std::size_t bytes = 96_MiB;
    constexpr std::uint32_t count = bytes / sizeof(std::uint32_t);
    const auto content = test::pattern(bytes, 5);
    const test::ModelFiles files;
    const std::string file = files.put("model", content);
    MemorySaver saver{books.driver};
    for (const bool retain : {true, false}) { // false: buffers are pinned while streams wait
        CAPTURE(retain);
        const std::string tag = retain ? "kept" : "fresh";
        const Arena arena = saver.arena(tag, FileSource{.threads = 4, .retain = retain});
        const Buffer<std::uint32_t> weights{arena, count};
        const Buffer<std::uint32_t> result{saver.arena("result"), count};
        arena.load(weights.data(), bytes, file);
        const Gate gate = arena.gate(weights.data(), bytes);
        GraphRef graph;
        REQUIRE(books.driver.begin_capture(program.stream, CaptureMode::global).ok());
        gate.before(program.stream);
        program.add_one(program.stream, weights.data(), count);
        REQUIRE(books.driver.end_capture(program.stream, graph).ok());
        std::vector<OwnedStream> others(40); // more than the device's hardware queues
        for (OwnedStream& other : others) REQUIRE(other.open(AnyDriver{books.driver}).ok());
        for (int round = 0; round < 3; ++round) {
            CAPTURE(round);
            saver.pause(tag);
            Arrival coming = saver.resume_async(tag);
            for (const OwnedStream& other : others) gate.before(other.get());
            REQUIRE(books.driver.launch(graph, program.stream).ok());
            coming.wait();
            CHECK(program.read(weights.data(), count) == words_of(content, 1));
        }
        program.synchronize();
        REQUIRE(books.driver.close_graph(graph).ok());
    }
}
} // namespace gpu_link_test
