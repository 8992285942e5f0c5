// memsaver-keeper FOLDER: keeps what the members of a share publish, so that weights stay on the device while no engine
// lives. It holds descriptors only: it needs no GPU, no driver and no room. Ends at SIGTERM or SIGINT. As a service
// with FileDescriptorStoreMax= it leaves them with systemd, for its next life. memsaver-keeper --list FOLDER: says what
// is published.
#include "memsaver/share/keeper.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace memsaver::detail;

namespace {

std::string_view text_of_variable(const char* name) {
    const char* const text = std::getenv(name); // NOLINT(concurrency-mt-unsafe)
    return text == nullptr ? "" : text;
}

/// Tells systemd something, if it listens: see sd_notify(3).
void notify(std::string text, int descriptor = -1) {
    const std::string_view path = text_of_variable("NOTIFY_SOCKET");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof address.sun_path) return;
    path.copy(address.sun_path, path.size());
    if (path[0] == '@') address.sun_path[0] = '\0'; // an abstract one
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    const ShareFd to = ShareFd::opened([] { return ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); });
    const timeval most{1, 0}; // others wait for the keeper
    (void)::setsockopt(to.get(), SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    if (::connect(to.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        send_with_descriptors(to.get(), {text.data(), text.size()}, &descriptor, descriptor < 0 ? 0 : 1, 0) < 0)
        std::perror("memsaver-keeper: cannot tell systemd");
}

/// systemd has a publication's descriptors by its number and theirs; number 0 is a file with the facts.
void tell_store(std::uint64_t id, std::size_t number, int descriptor) {
    const std::string name = "FDNAME=" + std::to_string(id) + '-' + std::to_string(number);
    notify((descriptor < 0 ? "FDSTOREREMOVE=1\n" : "FDSTORE=1\nFDPOLL=0\n") + name, descriptor);
}

void store(const Publication& publication, bool yes) noexcept {
    try {
        const PublicationFacts& facts = publication.facts;
        const ShareFd file = ShareFd::opened([] { return ::memfd_create("memsaver-facts", MFD_CLOEXEC); });
        if (!file || ::write(file.get(), &facts, sizeof facts) != sizeof facts)
            return std::perror("memsaver-keeper: cannot keep the facts of a publication");
        tell_store(facts.id, 0, yes ? file.get() : -1);
        for (std::size_t i = 0; i < publication.descriptors.size(); ++i)
            tell_store(facts.id, i + 1, yes ? publication.descriptors[i].get() : -1);
    } catch (const std::exception&) { // no host memory: what is there in part is not taken back
    }
}

/// What an earlier life has left with systemd: see sd_listen_fds(3).
std::vector<Keeper::Kept> stored() {
    std::map<std::uint64_t, std::map<std::size_t, ShareFd>> found;
    std::istringstream names{std::string{text_of_variable("LISTEN_FDNAMES")}};
    std::string name;
    if (text_of_variable("LISTEN_PID") != std::to_string(::getpid())) return {};
    for (int fd = 3; std::getline(names, name, ':'); ++fd) {
        (void)::fcntl(fd, F_SETFD, FD_CLOEXEC);
        unsigned long long id = 0;
        std::size_t number = 0;
        ShareFd own = ShareFd::opened([=] { return fd; });
        if (std::sscanf(name.c_str(), "%llu-%zu", &id, &number) == 2) found[id][number] = std::move(own);
    }
    std::vector<Keeper::Kept> all;
    for (auto& [id, parts] : found) {
        Publication publication;
        PublicationFacts& facts = publication.facts;
        const bool known = ::pread(parts.begin()->second.get(), &facts, sizeof facts, 0) == sizeof facts;
        const bool whole = known && facts.id == id && facts.name.back() == '\0' &&
                           parts.size() == facts.descriptors + 1 && parts.rbegin()->first == facts.descriptors;
        for (auto& [number, part] : parts) {
            if (!whole) tell_store(id, number, -1);
            if (number != 0) publication.descriptors.push_back(std::move(part));
        }
        if (whole) all.push_back(std::make_shared<const Publication>(std::move(publication)));
    }
    return all;
}

} // namespace

int main(int count, char** arguments) {
    const bool lists = count == 3 && std::string_view{arguments[1]} == "--list";
    const char* const path = arguments[count - 1];
    if (!(lists || count == 2) || path[0] == '-' || path[0] == '\0') {
        (void)std::fputs(
            "usage: memsaver-keeper FOLDER\n"
            "       memsaver-keeper --list FOLDER\n"
            "Keeps the pages that processes publish in a share (memsaver::ShareOptions::folder) until they\n"
            "are withdrawn, or until it is ended; or says what is published.\n",
            stderr);
        return 2;
    }
    if (lists && ::access(path, F_OK) != 0) {
        std::fprintf(stderr, "memsaver-keeper: %s: no such folder\n", path);
        return 1;
    }
    sigset_t ends; // blocked before there are other threads
    (void)::sigemptyset(&ends);
    (void)::sigaddset(&ends, SIGTERM);
    (void)::sigaddset(&ends, SIGINT);
    (void)::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
    (void)std::signal(SIGPIPE, SIG_IGN); // who has started it, and read what it says, may be gone
    rlimit descriptors{};                // one for each handle of pages
    if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
        descriptors.rlim_cur = descriptors.rlim_max;
        (void)::setrlimit(RLIMIT_NOFILE, &descriptors);
    }
    try {
        const ShareFolder folder{"", path};
        std::vector<Keeper::Kept> before = stored();
        std::vector<std::uint64_t> known; // to systemd
        for (const Keeper::Kept& each : before) known.push_back(each->facts.id);
        Keeper keeper{folder, std::chrono::milliseconds{500}, true, [&](const Publication& each, bool yes) {
                          if (!yes || std::find(known.begin(), known.end(), each.facts.id) == known.end())
                              store(each, yes);
                      }};
        if (lists) {
            for (const PublicationFacts& each : keeper.list())
                std::printf("%s%s%s\t%llu bytes\thash 0x%016llx\n", each.name.data(),
                            each.version[0] == '\0' ? "" : "@", each.version.data(),
                            static_cast<unsigned long long>(each.bytes), static_cast<unsigned long long>(each.hash));
            return 0;
        }
        for (const Keeper::Kept& each : std::exchange(before, {})) keeper.keep(each); // until it is withdrawn
        keeper.open(); // first: what is published from now on comes by itself
        Vector<std::string> silent;
        for (const PublicationFacts& each : keeper.list(&silent)) {
            const std::uint64_t heard = keeper.heard();
            const Keeper::Kept kept = keeper.get(each.id, silent);
            if (kept != nullptr) keeper.keep_got(kept, heard);
        }
        notify("READY=1");
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
