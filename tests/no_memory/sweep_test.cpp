// Every operation of the public interface while host memory runs out at each point in turn: it throws one of the
// library's exceptions, usage stays correct, and the same call continues from there.
#include "failing_new.hpp"
#include "failure/operations.hpp"

namespace no_memory_sweep_test {
using namespace test;

/// A pause, a resume or an exchange, and nothing else.
bool is_one_move(std::string_view operation) {
    const std::string_view call = operation.substr(0, operation.find(':'));
    return call == "pause" || call == "resume" || call == "exchange";
}

/// Runs an operation on a new world without its n-th allocation; negative: with all. Returns whether there was one.
bool run_without(long n, const Operation& operation, const SweptPolicy& policy, const Setting& setting) {
    CAPTURE(n);
    Populated world{policy, setting, operation.prepare};
    SweepPoint point;
    const std::size_t before = swept_bytes(world);
    countdown = n;
    try {
        operation.operate(world);
    } catch (const Error& error) {
        countdown = -1;
        point.error = std::current_exception();
        // The scratch memory of compressed backups is in no report.
        if (is_one_move(operation.name) && swept_bytes(world) != before && !contains(policy.name, "compressed"))
            CHECK(!error.report().tags.empty());
    } catch (const std::bad_alloc&) {
        countdown = -1;
        point.error = std::current_exception();
        FAIL_CHECK("bad_alloc got out");
    }
    const bool reached = n >= 0 && countdown < 0;
    countdown = -1;
    verify(world, point, operation);
    return reached;
}

/// The 1st, 2nd, ... allocation of each operation fails, or a sample of them.
void sweep_without(const std::vector<Operation>& operations, const std::vector<SweptPolicy>& policies,
                   const Setting& setting = {}) {
    for (const Operation& operation : operations) {
        CAPTURE(std::string{operation.name});
        Points points{name_of(operation.name, setting.name)};
        for (const SweptPolicy& policy : policies) {
            if (!has_room(operation, policy)) continue;
            CAPTURE(policy.name);
            (void)run_without(-1, operation, policy, setting); // the test's own tables are filled
            long n = static_cast<long>(sampling().of(operation.name).first(16));
            for (; run_without(n, operation, policy, setting); n += static_cast<long>(sampling().stride(16)))
                points.add(1);
            CHECK(n < 5000);
        }
    }
}

std::vector<SweptPolicy> pinned() { return some_policies(1, {"pinned"}); }

TEST_CASE("no memory: every operation") {
    std::vector<Operation> operations = repeatable();
    for (Operation& operation : operations) {
        if (std::string_view{operation.name} != "elastic: its end") continue;
        // Reported only: its memory goes with its arena at the latest, and counts until then.
        operation.prepare = all_of(operation.prepare, [](Populated& world) { world.counted = false; });
        operation.done = nothing;
    }
    sweep_without(operations, pinned());
}

TEST_CASE("no memory: pausing and resuming, under every sort of policy") {
    for (const auto& operations : {pausing(), resuming()})
        sweep_without(operations, some_policies(1, {"zero", "pageable, given back", "file, once", "pinned, verified",
                                                    "pinned, compressed"}));
}

TEST_CASE("no memory: savers and tags that end, evictions, two devices, single handles") {
    const Operation other{"another saver", nothing,
                          [](Populated& world) {
                              TaggedArena<FailingDriver, HostBackup> second{world.driver, "second", {.threads = 1}};
                              (void)second.allocate(64_KiB);
                              second.close();
                          },
                          nothing};
    for (const auto& operations : {living(), dying(), {other}}) sweep_without(operations, pinned());
    sweep_without(evicting(), pinned(), {.evicts = true});
    sweep_without(on_devices(), pinned(), {.well = Setting::Well::other});
    for (const auto& operations : {allocating(), pausing(), resuming()})
        sweep_without(operations, pinned(), {.name = "single handles", .single_handle = true});
}
} // namespace no_memory_sweep_test
