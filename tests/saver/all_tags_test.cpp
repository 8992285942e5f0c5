// Calls for all tags, or all under a prefix, leave out tags that another thread drops meanwhile.
#include "support/machines.hpp"

namespace saver_all_tags_test {
using namespace test;
using Saver = MemorySaver<MachineDriver>;

/// Every call that takes a list of tags, and how the tags are when it begins.
struct Operation {
    const char* name;
    bool paused;
    std::function<void(Saver&, const Tags&)> call;
};
const std::vector<Operation> operations{
    {"pause", false, [](Saver& s, const Tags& tags) { (void)s.pause(tags, {.order = already_idle}); }},
    {"resume", true, [](Saver& s, const Tags& tags) { (void)s.resume(tags); }},
    {"resume_async", true, [](Saver& s, const Tags& tags) { const Arrival waits = s.resume_async(tags); }},
    {"trim", false, [](Saver& s, const Tags& tags) { (void)s.trim(tags); }},
    {"save", false, [](Saver& s, const Tags& tags) { s.save(tags).wait(); }},
    {"exchange out", false,
     [](Saver& s, const Tags& tags) { (void)s.exchange(tags, Tags{"other"}, {.order = already_idle}); }},
    {"exchange in", true,
     [](Saver& s, const Tags& tags) { (void)s.exchange(Tags{"other"}, tags, {.order = already_idle}); }},
    {"prepare", false, [](Saver& s, const Tags& tags) { s.prepare(tags); }},
    {"invalidate", false, [](Saver& s, const Tags& tags) { s.invalidate(tags); }},
    {"forget_backup", true, [](Saver& s, const Tags& tags) { s.forget_backup(tags); }},
    {"bytes_to_resume", true, [](Saver& s, const Tags& tags) { (void)s.bytes_to_resume(tags); }},
    {"set_retain", false, [](Saver& s, const Tags& tags) { s.set_retain(tags, false); }},
    {"set_capacity", false, [](Saver& s, const Tags& tags) { s.set_capacity(tags, 1_GiB); }},
    {"set_evictable", false, [](Saver& s, const Tags& tags) { s.set_evictable(tags, true); }},
    {"set_priority", false, [](Saver& s, const Tags& tags) { s.set_priority(tags, 1); }},
    {"use", true, [](Saver& s, const Tags& tags) { const Use use = s.use(tags); }},
    {"drop", false, [](Saver& s, const Tags& tags) { s.drop(tags); }},
};

TEST_CASE("all tags: no call is misuse because another thread makes and drops tags") {
    for (const Operation& operation : operations) {
        const std::string name = operation.name;
        CAPTURE(name);
        for (const bool under : {false, true}) {
            const MachineDriver driver{HostDriver{64_MiB, {.granularity = 64_KiB}}};
            Saver saver{driver};
            for (const char* tag : {"m.kept", "other"})
                (void)saver.arena(tag, HostBackup{.refresh = Refresh::once, .threads = 1}).allocate(1000);
            std::atomic<bool> stop{false};
            std::atomic<int> rounds{0};
            const bool all = !under && !name.starts_with("exchange"); // a tag must not be in both lists
            std::thread dropping{[&] {
                while (!stop.load()) {
                    try {
                        (void)saver.arena("m.t", HostBackup{.refresh = Refresh::once, .threads = 1}).allocate(1000);
                        if (operation.paused) (void)saver.pause(Tags{"m.t"}, {.order = already_idle});
                        saver.drop(Tags{"m.t"});
                    } catch (const Error&) { // the calls under test may pause or drop it first
                    }
                    ++rounds;
                }
            }};
            std::string misuse;
            for (int i = 0; i < 100 || (rounds.load() < 20 && i < 100000); ++i) {
                try {
                    operation.call(saver, all ? Tags::all() : Tags::under("m."));
                } catch (const Misuse& error) {
                    misuse = error.what();
                } catch (const Error&) {
                }
            }
            stop.store(true);
            dropping.join();
            CHECK(misuse == "");
        }
    }
}
} // namespace saver_all_tags_test
