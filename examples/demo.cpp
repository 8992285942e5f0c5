// Demonstrates memsaver on this machine: an engine fills a device's memory with weights and a cache, pauses so that
// another program can use the memory, and resumes with every pointer valid and the weights unchanged. Run by
// cmake/demo.cmake.
//
// Neighbouring pages of 2 MiB hold different bytes. After each resume, the demo copies every byte to the host and
// checks it, so a page that is missing or mapped at a wrong place is found. The weights are written only once.
#include <memsaver/memsaver.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

using namespace memsaver;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Prints the demo's output: plain text, with colors and moving bars only on a terminal.
class Screen {
public:
    [[nodiscard]] std::string bar(double share, int width) const {
        const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * width + 0.5);
        std::string text;
        for (int i = 0; i < width; ++i) {
            text += fancy_ ? (i < full ? "\u2588" : "\u2591") : (i < full ? "#" : ".");
        }
        return fancy_ ? "\033[36m" + text + "\033[0m" : text;
    }
    [[nodiscard]] std::string strong(const std::string& text) const {
        return terminal_ ? "\033[1m" + text + "\033[0m" : text;
    }

    /// Prints one progress line. A terminal shows updates; otherwise only the final state is written. Thread-safe.
    void progress(const std::string& what, std::size_t done, std::size_t total, Clock::time_point start) {
        const std::lock_guard lock{mutex_};
        const bool end = done == total;
        if (!end && (!terminal_ || seconds_since(drawn_) < 0.05)) return;
        drawn_ = Clock::now();
        const double share = static_cast<double>(done) / static_cast<double>(total);
        std::printf("%s  %-30s %s %10s %8.2f s%s", terminal_ ? "\r" : "", what.c_str(), bar(share, 24).c_str(),
                    format_bytes(done).c_str(), seconds_since(start), end ? "\n" : "");
        std::fflush(stdout);
    }
    /// Prints one line about a finished step.
    void said(const std::string& what, const std::string& result) const {
        std::printf("  %-30s %s\n", what.c_str(), result.c_str());
    }

private:
    static bool utf8() {
        for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
            const char* value = std::getenv(name);
            if (value == nullptr || *value == '\0') continue;
            const std::string text{value};
            return text.find("UTF-8") != std::string::npos || text.find("utf8") != std::string::npos;
        }
        return false;
    }

    bool terminal_ = ::isatty(STDOUT_FILENO) != 0;
    bool fancy_ = terminal_ && utf8();
    std::mutex mutex_;
    Clock::time_point drawn_{};
};

/// Draws the events of a saver: how far the copies of each tag have progressed.
class Watcher {
public:
    explicit Watcher(Screen& screen) : screen_{screen} {}

    /// Starts the clock for the copies that follow.
    void begin() { start_ = Clock::now(); }
    void told(const Event& event) {
        if (event.kind == EventKind::began || event.kind == EventKind::ended) return; // the reports say the same
        if (event.kind == EventKind::progress) {
            screen_.progress("  " + event.text + " " + event.tag, event.bytes_done, event.bytes_total, start_);
        } else {
            screen_.said("  " + event.tag + ": ", event.text);
        }
    }

private:
    Screen& screen_;
    Clock::time_point start_{};
};

/// Blocks of one tag, filled with bytes that depend on their position.
template <Driver D>
class Blocks {
public:
    Blocks(const D& driver, Arena arena, Screen& screen) : driver_{driver}, arena_{std::move(arena)}, screen_{screen} {}

    void allocate(std::size_t total, std::size_t each) {
        for (std::size_t bytes = 0; bytes + each <= total; bytes += each) {
            addresses_.push_back(reinterpret_cast<Address>(arena_.allocate(each)));
        }
        each_ = each;
    }
    [[nodiscard]] std::size_t count() const { return addresses_.size(); }
    [[nodiscard]] std::size_t bytes() const { return addresses_.size() * each_; }

    /// Writes the bytes defined by `seed`.
    void load(const std::string& what, unsigned seed) {
        const auto start = Clock::now();
        for (std::size_t i = 0; i < count(); ++i) {
            for (std::size_t at = 0; at < each_; at += piece) {
                check(driver_.fill(addresses_[i] + at, byte(seed, i, at), std::min(piece, each_ - at), {}), "fill");
            }
            if (i % 64 == 63) check(driver_.drain(), "wait for the device"); // keeps the displayed progress accurate
            screen_.progress(what, i * each_, bytes(), start);
        }
        check(driver_.drain(), "wait for the device");
        screen_.progress(what, bytes(), bytes(), start);
    }
    /// Throws unless every byte is the one that was written.
    void verify(const std::string& what, unsigned seed) {
        const auto start = Clock::now();
        std::vector<unsigned char> seen(at_once);
        for (std::size_t i = 0; i < count(); ++i) {
            for (std::size_t at = 0; at < each_; at += at_once) {
                const std::size_t size = std::min(at_once, each_ - at);
                check(driver_.copy_to_host(seen.data(), addresses_[i] + at, size, {}), "copy");
                check(driver_.drain(), "wait for the device");
                for (std::size_t from = 0; from < size; from += piece) {
                    const unsigned char* const page = &seen[from];
                    const std::size_t length = std::min(piece, size - from);
                    const bool right =
                        page[0] == byte(seed, i, at + from) && std::memcmp(page, page + 1, length - 1) == 0;
                    if (!right) throw std::runtime_error{"block " + std::to_string(i) + ": wrong bytes"};
                }
            }
            screen_.progress(what, i * each_, bytes(), start);
        }
        screen_.progress(what, bytes(), bytes(), start);
    }

private:
    static constexpr std::size_t piece = 2_MiB;    // bytes of one value
    static constexpr std::size_t at_once = 16_MiB; // bytes copied to the host at a time

    static unsigned char byte(unsigned seed, std::size_t block, std::size_t at) {
        const std::size_t mixed = (block * 131 + at / piece * 31 + seed * 17) * 0x9E3779B97F4A7C15U;
        return static_cast<unsigned char>(1 + (mixed >> 56U) % 255); // never zero
    }

    D driver_;
    Arena arena_;
    Screen& screen_;
    std::size_t each_ = 0;
    std::vector<Address> addresses_;
};

/// Records the device's memory in use at several moments.
template <Driver D>
class Moments {
public:
    explicit Moments(const D& driver) : driver_{driver} {}

    std::size_t note(const std::string& name) {
        DeviceMemory memory;
        check(driver_.memory(memory), "query the device's memory");
        total_ = memory.total_bytes;
        rows_.push_back({name, memory.total_bytes - memory.free_bytes});
        return rows_.back().used;
    }
    void print(const Screen& screen) const {
        std::printf("\n%s\n", screen.strong("  device memory in use").c_str());
        for (const Row& row : rows_) {
            std::printf("  %-30s %s %11s\n", row.name.c_str(),
                        screen.bar(static_cast<double>(row.used) / static_cast<double>(total_), 40).c_str(),
                        format_bytes(row.used).c_str());
        }
    }

private:
    struct Row {
        std::string name;
        std::size_t used;
    };
    D driver_;
    std::size_t total_ = 0;
    std::vector<Row> rows_;
};

std::string text_of(const Report& report) {
    char time[32];
    std::snprintf(time, sizeof time, "%.1f ms", std::chrono::duration<double, std::milli>{report.elapsed}.count());
    const bool resumed = report.mapped_bytes != 0;
    const std::size_t copied = resumed ? report.restored_bytes : report.saved_bytes;
    return format_bytes(resumed ? report.mapped_bytes : report.released_bytes) +
           (resumed ? " mapped, " : " released, ") + (copied == 0 ? "nothing" : format_bytes(copied)) +
           (resumed ? " restored, in " : " saved, in ") + time;
}

/// Returns a size for the weights such that a copy fits into half of the available host memory and the demo stays
/// short.
template <Driver D>
std::size_t most_weights(const D& driver, std::size_t device_bytes) {
    std::size_t host = 0;
    check(driver.host_available(host), "query the available host memory");
    return std::max<std::size_t>(16_MiB, std::min({device_bytes / 10 * 4, host / 2, 32_GiB}));
}

template <Driver D>
void demonstrate(const D& driver) {
    Screen screen;
    Watcher watcher{screen};
    DeviceMemory memory;
    check(driver.memory(memory), "query the device's memory");
    std::printf("%s\n", screen
                            .strong("memsaver on " + driver.name() + ": " + format_bytes(memory.free_bytes) + " of " +
                                    format_bytes(memory.total_bytes) + " free")
                            .c_str());
    const std::size_t wanted = memory.free_bytes / 10 * 9;

    Moments moments{driver};
    moments.note("before");
    MemorySaver saver{driver, {.events = [&](const Event& event) { watcher.told(event); }}};
    Blocks weights{driver, saver.arena("weights", HostBackup{}), screen};
    Blocks cache{driver, saver.arena("cache", Discard{}), screen};

    std::printf("\n%s\n", screen.strong("The engine starts: weights and a cache, in two tags").c_str());
    const unsigned model = 1;
    const std::size_t most = most_weights(driver, wanted);
    weights.allocate(most, most > 8_GiB ? 256_MiB : 8_MiB);
    cache.allocate(wanted - weights.bytes(), wanted > 8_GiB ? 32_MiB : 2_MiB);
    weights.load("loading weights", model);
    cache.load("filling the cache", 100);
    weights.verify("checking weights", model);
    moments.note("engine running");

    std::printf("\n%s\n",
                screen.strong("The engine pauses: its pages are released, its addresses stay reserved").c_str());
    watcher.begin();
    screen.said("pause, both tags", text_of(saver.pause()));
    const std::size_t paused = moments.note("engine paused");

    std::printf("\n%s\n", screen.strong("Another engine uses the released memory").c_str());
    {
        MemorySaver other{driver};
        Blocks guest{driver, other.arena("guest"), screen};
        guest.allocate(wanted / 2, wanted > 8_GiB ? 256_MiB : 8_MiB);
        guest.load("another engine's memory", 200);
        moments.note("another engine running");
    }

    std::printf("\n%s\n", screen.strong("The engine resumes, weights first").c_str());
    watcher.begin();
    screen.said("resume \"weights\"", text_of(saver.resume("weights")));
    weights.verify("checking weights", model); // not written since they were loaded
    moments.note("weights resumed");
    screen.said("resume \"cache\"", text_of(saver.resume("cache")));
    const unsigned steps = 101;
    cache.load("filling the cache", steps);
    cache.verify("checking the cache", steps);
    weights.verify("checking weights again", model);
    const std::size_t back = moments.note("engine running again");

    std::printf("\n%s\n", screen.strong("Second pause and resume: the host memory is already pinned").c_str());
    watcher.begin();
    screen.said("pause, both tags", text_of(saver.pause()));
    watcher.begin();
    screen.said("resume, both tags", text_of(saver.resume()));
    weights.verify("checking weights", model);

    moments.print(screen);
    std::cout << '\n' << saver.usage();
    saver.close();
    if (paused >= back) throw std::runtime_error{"the pause did not reduce the device memory in use"};

    std::printf("\n  %zu weight and %zu cache blocks kept their addresses: every pointer stayed valid.\n"
                "  %s of weights were restored unchanged, twice; the cache was discarded, as its policy specifies.\n",
                weights.count(), cache.count(), format_bytes(weights.bytes()).c_str());
}

} // namespace

int main() {
    try {
        with_default_driver([](auto driver) { demonstrate(driver); }, {.host_capacity = 1_GiB});
    } catch (const std::exception& error) {
        std::fprintf(stderr, "\nthe demo failed: %s\n", error.what());
        return 1;
    }
    return 0;
}
