// memsaver-keeper FOLDER: keeps what the members of a share publish, so that weights stay on the device while no engine
// lives. It holds descriptors only: it needs no GPU, no driver and no room. Ends at SIGTERM or SIGINT.
// memsaver-keeper --list FOLDER: says what is published.
#include "memsaver/share/keeper.hpp"

#include <pthread.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string_view>

using namespace memsaver::detail;

int main(int count, char** arguments) {
    const bool lists = count == 3 && std::string_view{arguments[1]} == "--list";
    const char* const path = arguments[count - 1];
    if (!(lists || count == 2) || path[0] == '-') {
        (void)std::fputs(
            "usage: memsaver-keeper FOLDER\n"
            "       memsaver-keeper --list FOLDER\n"
            "Keeps the pages that processes publish in a share (memsaver::ShareOptions::folder) until they\n"
            "are withdrawn, or until it is ended; or says what is published.\n",
            stderr);
        return 2;
    }
    sigset_t ends; // blocked before there are other threads
    (void)::sigemptyset(&ends);
    (void)::sigaddset(&ends, SIGTERM);
    (void)::sigaddset(&ends, SIGINT);
    (void)::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
    rlimit descriptors{}; // one for each handle of pages
    if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
        descriptors.rlim_cur = descriptors.rlim_max;
        (void)::setrlimit(RLIMIT_NOFILE, &descriptors);
    }
    try {
        const ShareFolder folder{"", path};
        Keeper keeper{folder, std::chrono::milliseconds{500}, true};
        if (lists) {
            for (const PublicationFacts& each : keeper.list())
                std::printf("%s%s%s\t%llu bytes\thash 0x%016llx\n", each.name.data(),
                            each.version[0] == '\0' ? "" : "@", each.version.data(),
                            static_cast<unsigned long long>(each.bytes), static_cast<unsigned long long>(each.hash));
            return 0;
        }
        keeper.open(); // first: what is published from now on comes by itself
        for (const PublicationFacts& each : keeper.list()) {
            const std::uint64_t heard = keeper.heard();
            const Keeper::Kept kept = keeper.get(each.id);
            if (kept != nullptr) keeper.keep_got(kept, heard);
        }
        std::printf("memsaver-keeper: keeps what is published in %s\n", folder.path().c_str());
        (void)std::fflush(stdout); // who has started it may wait for this line
        int signal = 0;
        (void)::sigwait(&ends, &signal);
    } catch (const std::exception& error) {
        (void)std::fprintf(stderr, "memsaver-keeper: %s\n", error.what());
        return 1;
    }
    return 0;
}
