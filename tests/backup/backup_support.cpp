// Compiled once for all test programs: what Compressed and the other policies instantiate takes seconds.
#include "backup/backup_support.hpp"
#include "backup/compressed_support.hpp"
#include "memsaver/backup/verified.hpp"

namespace test {

const std::string& no_codec() {
    static const std::string why = on_cuda() ? NvcompLibrary::load().problem : std::string{};
    return why;
}

bool no_codec_here() {
    if (!no_codec().empty()) MESSAGE("skipped: Compressed: " << no_codec());
    return !no_codec().empty();
}

std::vector<NamedPolicy> coded_keepers(const Small& small) {
    if (!no_codec().empty()) {
        MESSAGE("skipped: Compressed: " << no_codec());
        return {};
    }
    const unsigned threads = small.threads;
    return {
        {"pinned, compressed", compressed(HostBackup{.threads = threads})},
        {"pinned, given back, compressed", compressed(HostBackup{.retain = false, .threads = threads})},
        {"pinned, once, compressed", compressed(HostBackup{.refresh = Refresh::once, .threads = threads})},
        {"file, compressed", compressed(in_file(small))},
        {"pinned, compressed, verified", Verified<Compressed<HostBackup>>{compressed(HostBackup{.threads = threads})}},
        {"file, verified, compressed", compressed(Verified<FileBackup>{in_file(small)})}};
}

std::vector<NamedPolicy> keepers(const Small& small) {
    const unsigned threads = small.threads;
    const auto once = [](auto policy) { return policy.refresh = Refresh::once, policy; };
    const auto given_back = [](auto policy) { return policy.retain = false, policy; };
    std::vector<NamedPolicy> all{
        {"pinned", HostBackup{.threads = threads}},
        {"pinned, given back", HostBackup{.retain = false, .threads = threads}},
        {"pinned, by kernel", HostBackup{.threads = threads, .kernel_copies = by_kernel}},
        {"pinned, once", HostBackup{.refresh = Refresh::once, .threads = threads}},
        {"pageable", pageable(small)},
        {"pageable, given back", given_back(pageable(small))},
        {"pageable, once", once(pageable(small))},
        {"file", in_file(small)},
        {"file, given back", given_back(in_file(small))},
        {"file, once", once(in_file(small))},
        {"source", FileSource{.threads = threads, .ring_bytes = threads * 4_MiB}},
        {"source, given back", FileSource{.threads = threads, .ring_bytes = threads * 4_MiB, .retain = false}},
        {"pinned, verified", Verified<HostBackup>{{.threads = threads}}},
        {"pageable, verified", Verified<HostBackup>{pageable(small)}},
        {"file, verified", Verified<FileBackup>{in_file(small)}}};
    for (NamedPolicy& coded : coded_keepers(small)) all.push_back(std::move(coded));
    return all;
}

std::string mapping_flags(const void* at) {
    std::ifstream smaps{"/proc/self/smaps"};
    bool here = false;
    for (std::string line; std::getline(smaps, line);) {
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0;
        char dash = 0;
        std::istringstream text{line};
        if (text >> std::hex >> begin >> dash >> end && dash == '-') {
            here = begin <= reinterpret_cast<std::uintptr_t>(at) && reinterpret_cast<std::uintptr_t>(at) < end;
        } else if (here && line.rfind("VmFlags:", 0) == 0) {
            return line + ' ';
        }
    }
    return {};
}
} // namespace test
