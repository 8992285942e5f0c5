// A fault in a tag's memory is reported with its name and otherwise has its usual effect, in programs with and without
// a fault handler.
#include "process/process_support.hpp"
#include "support/machines.hpp"

namespace host_fault_names_test {
using namespace test;
using process_test::Child;

void use_handler(void (*handler)(int), int flags = 0) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    (void)::sigaction(SIGSEGV, &action, nullptr);
}

/// As in a program without a handler: doctest installs one.
void use_default() { use_handler(SIG_DFL); }

struct sigaction current() {
    struct sigaction now {};
    (void)::sigaction(SIGSEGV, nullptr, &now);
    return now;
}

volatile sig_atomic_t mask_was_kept = 0;

void leave_with_7(int) { ::_exit(7); }

void leave_with_8(int signal, siginfo_t* info, void* context) {
    sigset_t blocked{};
    (void)::sigprocmask(SIG_BLOCK, nullptr, &blocked);
    mask_was_kept = sigismember(&blocked, SIGUSR1);
    ::_exit(signal == SIGSEGV && info->si_addr != nullptr && context != nullptr && mask_was_kept == 1 ? 8 : 9);
}

int touch(const void* pointer) { return *static_cast<const volatile unsigned char*>(pointer); }

/// Checks what a child says first, or that it says nothing, and how it ends.
void check_end(Child& child, const std::string& said, int code) {
    const std::string all = child.rest();
    CHECK_MESSAGE((said.empty() ? all.empty() : all.starts_with(said)), all);
    CHECK(child.wait() == code);
}

/// Pauses a tag of a machine and touches its memory.
int touch_paused(HostDriverOptions options = {}, const std::string& tag = "kv_cache") {
    MemorySaver saver{HostDriver{64_MiB, options}};
    void* const block = saver.arena(tag).allocate(1_MiB);
    (void)saver.pause(tag);
    return touch(block) & 0;
}

TEST_CASE("a fault: the tag is named, cut if it is long, and the process ends as ever") {
    for (const bool long_name : {false, true}) {
        Child child{[&] {
            use_default();
            return touch_paused({}, long_name ? std::string(1000, 'x') : "kv_cache");
        }};
        const std::string told = child.rest();
        CHECK(told.starts_with(long_name ? "memsaver: tag \"xxxx" : "memsaver: tag \"kv_cache\": 0x"));
        CHECK(contains(told, "paused (resume the tag first)"));
        CHECK(told.ends_with("in a block\n"));
        CHECK(told.find('\n') == told.size() - 1);
        CHECK(told.size() < 500);
        CHECK(child.wait() == -SIGSEGV);
    }
}

TEST_CASE("a fault: each tag has its own name, a TaggedArena too; of reused addresses the later one") {
    for (const char* touched : {"first", "second", "alone"}) {
        CAPTURE(touched);
        Child child{[&] {
            use_default();
            const HostDriver driver{256_MiB};
            MemorySaver saver{driver};
            TaggedArena alone{driver, "alone", Discard{}};
            (void)saver.arena("earlier").allocate(1_MiB);
            saver.drop("earlier");
            void* const first = saver.arena("first").allocate(1_MiB);
            void* const second = saver.arena("second").allocate(64_MiB);
            void* const third = alone.allocate(1_MiB);
            (void)saver.pause();
            (void)alone.pause();
            return touch(*touched == 'f' ? first : *touched == 's' ? second : third) & 0;
        }};
        check_end(child, std::string{"memsaver: tag \""} + touched + "\": 0x", -SIGSEGV);
    }
}

TEST_CASE("a violation names the tag whose memory work was about, unless tell_faults is off") {
    for (const bool told : {true, false}) {
        CAPTURE(told);
        const HostDriver driver{64_MiB, {.survive_faults = true, .tell_faults = told}};
        MemorySaver saver{driver};
        (void)saver.arena("weights").allocate(1_MiB);
        void* const block = saver.arena("kv_cache").allocate(1_MiB);
        (void)saver.pause("kv_cache");
        REQUIRE(driver.enqueue({}, reinterpret_cast<Address>(block), 1_MiB, [] {}).ok());
        REQUIRE(driver.drain().ok());
        REQUIRE(driver.violations().size() == 1);
        const std::string text = driver.violations().front();
        CHECK(text.starts_with(
            "work on memory that is not mapped, or without access: paused, freed, or elastic and not committed (1.00 "
            "MiB at 0x"));
        CHECK(text.ends_with(told ? ", tag \"kv_cache\")" : ")"));
        CHECK((text.find("tag") != std::string::npos) == told);
    }
}

TEST_CASE("a fault elsewhere, and with tell_faults off: nothing is printed") {
    Child elsewhere{[] {
        use_default();
        MemorySaver saver{HostDriver{64_MiB}};
        (void)saver.arena("weights").allocate(1_MiB);
        return touch(::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) & 0;
    }};
    check_end(elsewhere, "", -SIGSEGV);
    Child off{[] {
        use_default();
        return touch_paused({.tell_faults = false});
    }};
    check_end(off, "", -SIGSEGV);
}

TEST_CASE("a fault: the program's own handler comes next, with its mask and its arguments") {
    Child plain{[] {
        use_handler(leave_with_7);
        return touch_paused();
    }};
    check_end(plain, "memsaver: tag \"kv_cache\"", 7);
    Child informed{[] {
        struct sigaction action {};
        action.sa_sigaction = leave_with_8;
        action.sa_flags = SA_SIGINFO;
        (void)sigaddset(&action.sa_mask, SIGUSR1);
        (void)::sigaction(SIGSEGV, &action, nullptr);
        return touch_paused();
    }};
    check_end(informed, "memsaver: tag \"kv_cache\"", 8);
}

void* mended = nullptr;

void mend(int) { (void)::mprotect(mended, 4096, PROT_READ); }

TEST_CASE("a fault: the program goes on if a handler repairs it; a handler for one fault runs once") {
    for (const bool once : {false, true}) {
        CAPTURE(once);
        Child child{[&] {
            use_handler(mend, once ? static_cast<int>(SA_RESETHAND) : 0);
            MemorySaver saver{HostDriver{64_MiB}};
            (void)saver.arena("weights").allocate(1_MiB);
            for (int round = 0; round < 2; ++round) {
                mended = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                (void)touch(mended);
            }
        }};
        check_end(child, "", (once ? -SIGSEGV : 0));
    }
}

TEST_CASE("a signal that was sent is no fault: it ends the process, or is ignored, as it would have been") {
    Child ends{[] {
        use_default();
        MemorySaver saver{HostDriver{64_MiB}};
        (void)saver.arena("weights").allocate(1_MiB);
        (void)::raise(SIGSEGV);
    }};
    check_end(ends, "", -SIGSEGV);
    Child ignores{[] {
        use_handler(SIG_IGN);
        MemorySaver saver{HostDriver{64_MiB}};
        void* const block = saver.arena("weights").allocate(1_MiB);
        (void)::raise(SIGSEGV);
        (void)::write(STDERR_FILENO, "still here\n", 11);
        (void)saver.pause();
        return touch(block) & 0; // cannot be ignored
    }};
    check_end(ignores, "still here\nmemsaver: tag \"weights\"", -SIGSEGV);
}

TEST_CASE("the handler is installed while a tag has addresses, then the earlier one is restored") {
    Child child{[] {
        use_handler(leave_with_7, SA_RESTART);
        const auto kept = [] { return current().sa_handler == leave_with_7 && (current().sa_flags & SA_RESTART) != 0; };
        const HostDriver driver{64_MiB};
        if (!kept()) return 1;
        std::optional<MemorySaver<HostDriver>> one{driver};
        std::optional<MemorySaver<HostDriver>> other{driver};
        if (!kept()) return 2; // no tag has addresses
        (void)one->arena("a").allocate(1_MiB);
        (void)other->arena("a").allocate(1_MiB);
        if (kept() || (current().sa_flags & SA_RESTART) == 0) return 3;
        one.reset();
        if (kept()) return 4;
        other->close();
        if (!kept()) return 5;
        return 0;
    }};
    CHECK(child.outcome() == "0");
}

TEST_CASE("a handler that came later stays, and hands on to ours while and after there are tags") {
    Child child{[] {
        use_default();
        static struct sigaction beneath {};
        std::optional<MemorySaver<HostDriver>> saver{HostDriver{64_MiB}};
        (void)saver->arena("a").allocate(1_MiB);
        struct sigaction above {};
        above.sa_flags = SA_SIGINFO;
        above.sa_sigaction = [](int signal, siginfo_t* info, void* context) {
            (void)::write(STDERR_FILENO, "above\n", 6);
            beneath.sa_sigaction(signal, info, context);
        };
        (void)::sigaction(SIGSEGV, &above, &beneath);
        saver.reset();
        if (current().sa_sigaction != above.sa_sigaction) return 1;
        saver.emplace(HostDriver{64_MiB});
        void* const block = saver->arena("b").allocate(1_MiB);
        (void)saver->pause();
        if (current().sa_sigaction != above.sa_sigaction) return 2; // installed twice, they would call each other
        return touch(block) & 0;
    }};
    check_end(child, "above\nmemsaver: tag \"b\": 0x", -SIGSEGV);
}
} // namespace host_fault_names_test
