// What is in a publication: the sizes of its handles, and its names. A file in memory, passed on with the pages.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/system.hpp"
#include "memsaver/share/keeper.hpp"
#include "memsaver/share/xxh64.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace memsaver::inline v0_3::detail {

struct ManifestHead {
    std::array<char, 8> mark{'m', 'e', 'm', 'p', 'u', 'b', ' ', '2'};
    std::uint64_t parts = 0;  ///< handles of shared pages; their sizes follow
    std::uint64_t rows = 0;   ///< then these
    std::uint64_t copied = 0; ///< then so many bytes: of ranges that each reader gets a copy of
};

struct ManifestRow {
    std::array<char, 200> name{};
    std::uint64_t copied = 0; ///< 1 if each reader gets a copy
    std::uint64_t offset = 0; ///< in all shared handles, one after the other, or in the copied bytes
    std::uint64_t bytes = 0;
    std::uint64_t hash = 0;
};

struct Manifest {
    Vector<std::uint64_t> parts;
    Vector<ManifestRow> rows;
    std::uint64_t copied = 0;
    std::size_t copies_at = 0; // in the file, of one that was read

    /// The hash of all names and bytes.
    [[nodiscard]] std::uint64_t hash() const {
        Vector<ManifestRow> only = rows;
        std::sort(only.begin(), only.end(), [](const ManifestRow& a, const ManifestRow& b) { return a.name < b.name; });
        for (ManifestRow& each : only) each.copied = each.offset = 0; // neither name nor bytes
        return xxh64(only.data(), only.size() * sizeof(ManifestRow));
    }

    /// Written once: nobody can change it any more.
    [[nodiscard]] ShareFd write(const Vector<std::byte>& copies) const {
        ShareFd file =
            ShareFd::opened([] { return ::memfd_create("memsaver-publication", MFD_CLOEXEC | MFD_ALLOW_SEALING); });
        const ManifestHead head{.parts = parts.size(), .rows = rows.size(), .copied = copies.size()};
        const auto must = [](const Status& status) { check(status, "write the manifest of a publication"); };
        std::size_t at = 0;
        const auto put = [&](const void* from, std::size_t bytes) {
            must(SystemFiles::write_file({file.get()}, from, bytes, at));
            at += bytes;
        };
        if (!file) must(system_status(errno));
        put(&head, sizeof head);
        put(parts.data(), parts.size() * sizeof(std::uint64_t));
        put(rows.data(), rows.size() * sizeof(ManifestRow));
        put(copies.data(), copies.size());
        constexpr int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
        if (::fcntl(file.get(), F_ADD_SEALS, seals) != 0) must(system_status(errno));
        return file;
    }

    /// Throws Unavailable if it does not fit the publication, or itself.
    [[nodiscard]] static Manifest read(const Publication& publication) {
        const int file = publication.descriptors.empty() ? -1 : publication.descriptors.front().get();
        struct stat facts {};
        ManifestHead head;
        const ManifestHead wanted;
        Manifest manifest;
        std::size_t offset = 0;
        const auto get = [&](void* to, std::size_t bytes) {
            const bool all = ::pread(file, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
            offset += bytes;
            return all;
        };
        bool good = ::fstat(file, &facts) == 0 && get(&head, sizeof head) && head.mark == wanted.mark &&
                    head.parts != 0 && head.parts == publication.descriptors.size() - 1 &&
                    head.copied <= ShareMessage::most_bytes &&
                    head.rows <= static_cast<std::uint64_t>(facts.st_size) / sizeof(ManifestRow);
        if (good) {
            manifest.copied = head.copied;
            manifest.parts.resize(head.parts);
            manifest.rows.resize(head.rows);
            good = get(manifest.parts.data(), head.parts * sizeof(std::uint64_t)) &&
                   get(manifest.rows.data(), head.rows * sizeof(ManifestRow)) &&
                   offset + head.copied == static_cast<std::size_t>(facts.st_size);
            manifest.copies_at = offset;
        }
        std::uint64_t shared = 0;
        for (const std::uint64_t each : manifest.parts) {
            good = good && each <= ShareMessage::most_bytes - std::min(shared, ShareMessage::most_bytes);
            shared += each;
        }
        good = good && publication.facts.hash == manifest.hash();
        for (const ManifestRow& each : manifest.rows) {
            const std::uint64_t size = each.copied != 0 ? manifest.copied : shared;
            good = good && each.name.back() == '\0' && each.offset <= size && each.bytes <= size - each.offset;
        }
        if (!good) unavailable({"Share: a publication that cannot be understood: of another version of memsaver"});
        return manifest;
    }
};

} // namespace memsaver::inline v0_3::detail
