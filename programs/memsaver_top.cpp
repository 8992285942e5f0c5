// memsaver-top [--once] [FOLDER]: the members of a share, as a table that is refreshed; without FOLDER those of all
// shares in the usual place. It looks on: it is no member, takes no lock, and needs no GPU.
#include "memsaver/core/sizes.hpp"
#include "memsaver/share/folder.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

using namespace memsaver;
using namespace memsaver::detail;

namespace {

using Clock = std::chrono::steady_clock;

/// Asks the leader for the members, and how many bytes linger. Returns what is in the way, if anything.
std::string ask(const std::string& path, std::vector<ShareFacts>& rows, std::uint64_t& lingering) {
    if (!std::filesystem::is_directory(path)) return "there is no such folder"; // it would be made
    const ShareFolder folder{"", path};
    const ShareFd link = folder.connect();
    if (!link) return "no members";
    ShareMessage message;
    message.kind = ShareMessage::Kind::list;
    if (!send_message(link.get(), message)) return "no members";
    const auto until = Clock::now() + std::chrono::seconds{1};
    for (ShareFd none;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
        pollfd polled{link.get(), POLLIN, 0};
        if (left <= 0 || ::poll(&polled, 1, static_cast<int>(left)) == 0)
            return "the leading member does not answer: it is stopped, or hangs";
        const ShareReceived got = receive_message(link.get(), message, none);
        if (got == ShareReceived::ended) return "the leading member has just ended, or is of another version";
        if (got == ShareReceived::message && message.kind == ShareMessage::Kind::row) rows.push_back(message.facts);
        if (got != ShareReceived::message || message.kind != ShareMessage::Kind::end) continue;
        lingering = message.bytes;
        return {};
    }
}

/// "-" for nothing.
std::string in_table(std::uint64_t bytes) { return bytes == 0 ? "-" : format_bytes(bytes); }

std::string time_in_table(std::uint64_t nanoseconds) {
    const std::uint64_t seconds = nanoseconds / 1'000'000'000;
    if (seconds < 100) return std::to_string(seconds) + " s";
    return seconds < 6000 ? std::to_string(seconds / 60) + " min" : std::to_string(seconds / 3600) + " h";
}

bool show(const std::string& path) {
    std::vector<ShareFacts> rows;
    std::uint64_t lingering = 0;
    std::string wrong;
    try {
        wrong = ask(path, rows, lingering);
    } catch (const std::exception& error) {
        wrong = error.what();
    }
    std::printf("%s%s%s\n", path.c_str(), wrong.empty() ? "" : ": ", wrong.c_str());
    if (!wrong.empty()) return false;
    std::sort(rows.begin(), rows.end(), [](const ShareFacts& a, const ShareFacts& b) {
        return a.priority != b.priority ? a.priority > b.priority : a.held > b.held;
    });
    constexpr const char* row = "%-24.24s %9s %5s %7s %11s %11s %7s %11s %11s\n";
    std::printf(row, "NAME", "PROCESS", "LENDS", "PRIO", "FLOOR", "HELD", "IDLE", "PUBLISHED", "WAITS FOR");
    for (const ShareFacts& each : rows) {
        std::string name = each.name[0] == '\0' ? "(no name)" : each.name.data();
        for (char& letter : name)
            if (static_cast<unsigned char>(letter) < ' ') letter = '?'; // what a terminal would obey
        std::printf(row, name.c_str(), std::to_string(each.process).c_str(), each.lends != 0 ? "yes" : "no",
                    std::to_string(each.priority).c_str(), in_table(each.floor).c_str(), in_table(each.held).c_str(),
                    time_in_table(each.idle).c_str(), in_table(each.published).c_str(), in_table(each.waiting).c_str());
    }
    if (lingering != 0) std::printf("%s linger for whoever takes them next\n", format_bytes(lingering).c_str());
    return true;
}

bool show_all() {
    const char* const runtime = std::getenv("XDG_RUNTIME_DIR"); // NOLINT(concurrency-mt-unsafe)
    const bool given = runtime != nullptr && runtime[0] == '/';
    const std::string usual = (given ? runtime : "/tmp/memsaver-" + std::to_string(::geteuid())) + "/memsaver";
    std::vector<std::string> folders;
    std::error_code error;
    for (const auto& each : std::filesystem::directory_iterator{usual, error}) folders.push_back(each.path().string());
    std::sort(folders.begin(), folders.end());
    if (folders.empty()) std::printf("%s: no share is there\n", usual.c_str());
    bool all = !folders.empty();
    for (const std::string& each : folders) all = show(each) && all;
    return all;
}

} // namespace

int main(int count, char** arguments) {
    const bool once = count > 1 && std::string_view{arguments[1]} == "--once";
    const char* const path = count > (once ? 2 : 1) ? arguments[count - 1] : "";
    if (count > (once ? 3 : 2) || path[0] == '-') {
        (void)std::fputs("usage: memsaver-top [--once] [FOLDER]\n"
                         "Shows the members of the share that meets in FOLDER (memsaver::ShareOptions::folder), or of\n"
                         "all in the usual place: who holds and who waits for device memory.\n",
                         stderr);
        return 2;
    }
    const bool refreshes = !once && ::isatty(STDOUT_FILENO) != 0;
    for (;;) {
        if (refreshes) std::printf("\033[H\033[J"); // clears the terminal
        const bool shown = path[0] != '\0' ? show(path) : show_all();
        (void)std::fflush(stdout);
        if (!refreshes) return shown ? 0 : 1;
        (void)::sleep(1);
    }
}
