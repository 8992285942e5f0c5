// Options that cannot mean anything are refused when they are given: the message names the option, its value and what
// is valid. Options at the edge of what is valid work.
#include "memsaver/backup/compressed.hpp"
#include "memsaver/backup/verified.hpp"
#include "support/machines.hpp"

namespace saver_options_test {
using namespace test;
using Saver = MemorySaver<>;

/// What the message must contain: the option, its value, the range.
struct Case {
    std::vector<std::string> said;
    std::function<void(Saver&)> give;
};

template <class P>
std::function<void(Saver&)> tag_with(P policy) {
    return [policy](Saver& saver) { (void)saver.arena("t", AnyPolicy{policy}); };
}

template <class Enumeration>
Enumeration number(int value) {
    return static_cast<Enumeration>(value);
}

const std::string threads_range = "1 to 1024";
const std::string ring_range = "1.00 MiB to " + format_bytes(1024_GiB);

std::vector<Case> refused() {
    const AnyDriver peer{HostDriver{64_MiB, {.device = 1}}};
    return std::vector<Case>{
        {{"HostBackup::threads", "0", threads_range}, tag_with(HostBackup{.threads = 0})},
        {{"HostBackup::threads", "1000000", threads_range}, tag_with(HostBackup{.threads = 1000000})},
        {{"HostBackup::ring_bytes", "0 B", ring_range},
         tag_with(HostBackup{.storage = Storage::pageable, .ring_bytes = 0})},
        {{"HostBackup::ring_bytes", "1 B", ring_range}, tag_with(HostBackup{.ring_bytes = 1})},
        {{"HostBackup::ring_bytes", ring_range}, tag_with(HostBackup{.ring_bytes = std::size_t{1} << 60U})},
        {{"HostBackup::storage", "7", "0 to 1"}, tag_with(HostBackup{.storage = number<Storage>(7)})},
        {{"HostBackup::refresh", "9", "0 to 1"}, tag_with(HostBackup{.refresh = number<Refresh>(9)})},
        {{"HostBackup::retain", "false", "Refresh::once"},
         tag_with(HostBackup{.refresh = Refresh::once, .retain = false})},
        {{"HostBackup::check", "true", "Refresh::once"}, tag_with(HostBackup{.check = true})},
        {{"KernelCopyOptions::after", "-1 ns", "0"}, tag_with(HostBackup{.kernel_copies = {.after = -1ns}})},
        {{"KernelCopyOptions::slower", "-1", "0"}, tag_with(HostBackup{.kernel_copies = {.slower = -1}})},
        {{"KernelCopyOptions::slower", "nan", "0"},
         tag_with(HostBackup{.kernel_copies = {.slower = std::numeric_limits<double>::quiet_NaN()}})},
        {{"FileBackup::threads", "0", threads_range}, tag_with(FileBackup{.directory = "/tmp", .threads = 0})},
        {{"FileBackup::ring_bytes", "0 B", ring_range}, tag_with(FileBackup{.directory = "/tmp", .ring_bytes = 0})},
        {{"FileBackup::refresh", "2", "0 to 1"},
         tag_with(FileBackup{.directory = "/tmp", .refresh = number<Refresh>(2)})},
        {{"FileBackup::retain", "false", "Refresh::once"},
         tag_with(FileBackup{.directory = "/tmp", .refresh = Refresh::once, .retain = false})},
        {{"FileBackup::check", "true", "Refresh::once"}, tag_with(FileBackup{.directory = "/tmp", .check = true})},
        {{"FileBackup", ".directory is empty"}, tag_with(FileBackup{})},
        {{"FileSource::threads", "0", threads_range}, tag_with(FileSource{.threads = 0})},
        {{"FileSource::ring_bytes", "0 B", ring_range}, tag_with(FileSource{.ring_bytes = 0})},
        {{"PeerBackup::refresh", "9", "0 to 1"}, tag_with(PeerBackup{.peer = peer, .refresh = number<Refresh>(9)})},
        {{"PeerBackup::retain", "false", "Refresh::once"},
         tag_with(PeerBackup{.peer = peer, .refresh = Refresh::once, .retain = false})},
        {{"PeerBackup::check", "true", "Refresh::once"}, tag_with(PeerBackup{.peer = peer, .check = true})},
        {{"Compressed::pieces", "0", threads_range}, tag_with(Compressed<HostBackup>{.pieces = 0})},
        {{"Compressed::piece_bytes", "0 B", "1.00 MiB to 1.00 GiB"},
         tag_with(Compressed<HostBackup>{.piece_bytes = 0})},
        {{"Compressed::piece_bytes", "2.00 GiB", "1.00 MiB to 1.00 GiB"},
         tag_with(Compressed<HostBackup>{.piece_bytes = 2_GiB})},
        {{"Compressed::coding", "5", "0 to 1"}, tag_with(Compressed<HostBackup>{.coding = number<Coding>(5)})},
        {{"HostBackup::threads", "0", threads_range}, tag_with(Compressed<HostBackup>{.policy = {.threads = 0}})},
        {{"HostBackup::threads", "0", threads_range}, tag_with(Verified<HostBackup>{{.threads = 0}})},
        {{"HostBackup::threads", "0", threads_range},
         tag_with(Compressed<Verified<HostBackup>>{.policy = {{.threads = 0}}})},
        // Wherever a policy is given:
        {{"HostBackup::threads", "0", threads_range},
         [](Saver&) { const Saver other{HostDriver{64_MiB}, {.default_policy = HostBackup{.threads = 0}}}; }},
        {{"HostBackup::threads", "0", threads_range},
         [](Saver& saver) { (void)saver.pause({.bytes = HostBackup{.threads = 0}}); }},
        {{"HostBackup::threads", "0", threads_range},
         [](Saver& saver) { (void)saver.exchange("x", "y", {.bytes_out = HostBackup{.threads = 0}}); }},
        {{"HostBackup::threads", "0", threads_range},
         [](Saver&) { const TaggedArena<HostDriver, HostBackup> arena{HostDriver{64_MiB}, "t", {.threads = 0}}; }},
        // Options of other structs:
        {{"SaverOptions::new_tags", "3", "0 to 1"},
         [](Saver&) { const Saver other{HostDriver{64_MiB}, {.new_tags = number<NewTags>(3)}}; }},
        {{"reserve", "2.00 MiB", "4.00 MiB"},
         [](Saver& saver) { (void)saver.arena("t", ArenaOptions{.capacity = 2_MiB, .reserve = 4_MiB}); }},
        {{"WorkspaceOptions::reuse", "4", "0 to 1"},
         [](Saver& saver) {
             WorkspacePool pool{saver.arena("t")};
             (void)pool.get("w", 100, {.reuse = number<Reuse>(4)});
         }},
        {{"cap", "0"}, [](Saver& saver) { const WorkspacePool pool{saver.arena("t"), {.cap = 0}}; }},
        {{"CaptureOptions::mode", "8", "0 to 2"},
         [](Saver& saver) { (void)capture(saver, "t", StreamRef{}, {.mode = number<CaptureMode>(8)}, [] {}); }},
        {{"RegistrationOptions::on_pause", "2", "0 to 1"},
         [](Saver& saver) {
             Registrations regs{saver};
             void* const block = saver.arena("t").allocate(4096);
             (void)regs.add(block, 4096, {.who = "x", .on_pause = number<OnPause>(2)});
         }},
        {{"granularity", "3"}, [](Saver&) { const HostDriver machine{64_MiB, {.granularity = 3}}; }},
        {{"device 7"}, [](Saver& saver) { (void)saver.reclaim(1, {.device = 7}); }},
        {{"0"},
         [](Saver& saver) { (void)saver.arena("t").elastic(4_MiB, {.granularity = 0}); }},
        {{"not a number"}, [](Saver& saver) {
             (void)saver.pause({.timeout = std::chrono::duration<double>{std::numeric_limits<double>::quiet_NaN()}});
         }}};
}

TEST_CASE("options without meaning: the refusal names the option, the value and what is valid") {
    for (const Case& each : refused()) {
        CAPTURE(each.said.front());
        Saver saver{AnyDriver{HostDriver{64_MiB}}};
        std::string text;
        try {
            each.give(saver);
        } catch (const Misuse& error) {
            text = error.what();
        } catch (const Unavailable&) { // the codec's library is missing
            continue;
        }
        CAPTURE(text);
        CHECK(text != "");
        for (const std::string& part : each.said) CHECK_MESSAGE(contains(text, part), part);
        for (const ArenaUsage& row : saver.usage()) CHECK(row.used_bytes <= 4096); // nothing else was made
    }
}

TEST_CASE("set_capacity refuses what the option refuses, and changes no tag then") {
    constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
    Saver saver{AnyDriver{HostDriver{64_MiB}}};
    CHECK_THROWS_AS((void)saver.arena("a", ArenaOptions{.capacity = most}), Misuse);
    const Arena arena = saver.arena("a", ArenaOptions{.capacity = 2_MiB});
    CHECK_THROWS_AS(saver.set_capacity("a", most), Misuse);
    (void)arena.allocate(2_MiB);
    CHECK_THROWS_AS((void)arena.allocate(2_MiB), Misuse);
}

TEST_CASE("options at the edge of what is valid work") {
    const AnyPolicy policies[] = {
        HostBackup{.threads = 1024},
        HostBackup{.refresh = Refresh::once, .check = true, .threads = 1},
        HostBackup{.storage = Storage::pageable, .threads = 1, .ring_bytes = 1_MiB},
        HostBackup{.retain = false, .kernel_copies = {.after = 0ns, .slower = 0}},
        HostBackup{.kernel_copies = {.after = std::chrono::hours::max()}},
        FileBackup{.directory = "/tmp", .threads = 1, .ring_bytes = 1_MiB},
        FileSource{.threads = 1, .ring_bytes = 1_MiB},
        Verified<HostBackup>{{.threads = 1}},
        Compressed<HostBackup>{.policy = {.threads = 1}, .piece_bytes = 1_MiB, .pieces = 1024},
    };
    for (const AnyPolicy& policy : policies) {
        CAPTURE(policy.describe());
        Saver saver{AnyDriver{HostDriver{64_MiB}}};
        (void)saver.arena("t", policy).allocate(1_MiB);
        pause_and_resume(saver, "t");
        CHECK(saver.arena("t", policy).usage().used_bytes == 1_MiB); // the same policy again
    }
}
} // namespace saver_options_test
