// Every call of a saver and of an arena, with tags "a" and "b" and a live block of "a": for what holds for all of them.
#pragma once

#include "memsaver/memsaver.hpp"

#include <string>
#include <vector>

namespace test {
using namespace memsaver;

template <class Saver>
struct EveryCall {
    const char* name; ///< as errors say it
    void (*call)(Saver&, const Arena&, void* block);
    /// Which refuses it once the saver is closed: the saver, by name, or for a pointer; the arena; or none.
    enum class Of : unsigned char { saver, pointer, arena, either } of = Of::saver;
};

template <class Saver>
const std::vector<EveryCall<Saver>>& every_call() {
    using S = Saver&;
    using A = const Arena&;
    using Of = typename EveryCall<Saver>::Of;
    static const std::vector<EveryCall<Saver>> calls{
        {"arena of tag \"new\"", [](S s, A, void*) { (void)s.arena("new"); }},
        {"arena of tag \"a\"", [](S s, A, void*) { (void)s.region("a"); }},
        {"outside", [](S s, A, void*) { (void)s.outside(); }},
        {"pause of tag \"a\"", [](S s, A, void*) { (void)s.pause("a"); }},
        {"pause", [](S s, A, void*) { (void)s.pause(); }},
        {"pause of no tag", [](S s, A, void*) { (void)s.pause(std::vector<std::string>{}); }},
        {"resume of tags \"b\", \"a\"",
         [](S s, A, void*) {
             (void)s.resume(Tags{"b", "a"});
         }},
        {"resume_async of tag \"a\"", [](S s, A, void*) { s.resume_async("a").wait(); }},
        {"save of tag \"b\"", [](S s, A, void*) { s.save("b").wait(); }},
        {"exchange of tags \"b\", \"a\"",
         [](S s, A, void*) {
             (void)s.exchange(Tags{"b", "a"}, Tags{});
         }},
        {"trim", [](S s, A, void*) { (void)s.trim(); }},
        {"trim of tag \"b\"", [](S s, A, void*) { (void)s.trim("b"); }},
        {"prepare of tag \"a\"", [](S s, A, void*) { s.prepare("a"); }},
        {"invalidate of tag \"b\"", [](S s, A, void*) { s.invalidate("b"); }},
        {"forget_backup of tag \"a\"", [](S s, A, void*) { s.forget_backup("a"); }},
        {"bytes_to_resume", [](S s, A, void*) { (void)s.bytes_to_resume(); }},
        {"set_capacity of tag \"a\"", [](S s, A, void*) { s.set_capacity("a", 0); }},
        {"set_retain of tag \"a\"", [](S s, A, void*) { s.set_retain("a", true); }},
        {"set_evictable of tag \"a\"", [](S s, A, void*) { s.set_evictable("a", true); }},
        {"set_priority of tag \"a\"", [](S s, A, void*) { s.set_priority("a", 1); }},
        {"use of tag \"a\"", [](S s, A, void*) { const Use use = s.use("a"); }},
        {"reclaim", [](S s, A, void*) { (void)s.reclaim(1); }},
        {"drop of tag \"a\"", [](S s, A, void*) { s.drop("a"); }},
        {"before_pause", [](S s, A, void*) { (void)s.before_pause([](PauseEvent&) {}); }},
        {"after_pause", [](S s, A, void*) { (void)s.after_pause(trim_cuda_pools); }},
        {"after_failed_pause", [](S s, A, void*) { (void)s.after_failed_pause([](PauseEvent&) {}); }},
        {"before_resume", [](S s, A, void*) { (void)s.before_resume([](ResumeEvent&) {}); }},
        {"after_resume", [](S s, A, void*) { (void)s.after_resume([](ResumeEvent&) {}); }},
        {"gate", [](S s, A, void* block) { (void)s.gate(block, 1); }, Of::pointer},
        {"backup_view", [](S s, A, void* block) { (void)s.backup_view(block, 1); }, Of::pointer},
        {"write_backup", [](S s, A, void* block) { s.write_backup(block, "", 1); }, Of::pointer},
        {"deallocate", [](S s, A, void* block) { s.deallocate(block); }, Of::pointer},
        {"owns", [](S s, A, void* block) { (void)s.owns(block); }, Of::either},
        {"set_margin", [](S s, A, void*) { s.set_margin(0); }},
        {"usage", [](S s, A, void*) { (void)s.usage(); }, Of::either},
        {"close", [](S s, A, void*) { s.close(); }, Of::either},
        {"allocate(77 bytes)", [](S, A a, void*) { (void)a.allocate(77); }, Of::arena},
        {"reserve addresses", [](S, A a, void*) { (void)a.elastic(3 << 20); }, Of::arena},
        {"gate(", [](S, A a, void* block) { (void)a.gate(block, 1); }, Of::arena},
        {"backup_view(", [](S, A a, void* block) { (void)a.backup_view(block, 7); }, Of::arena},
        {"deallocate(", [](S, A a, void* block) { a.deallocate(block); }, Of::arena},
    };
    return calls;
}
} // namespace test
