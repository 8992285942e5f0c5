// The library's version, and the inline namespace that carries it. Has no dependencies.
#pragma once

#define MEMSAVER_VERSION_MAJOR 0
#define MEMSAVER_VERSION_MINOR 3
#define MEMSAVER_VERSION_PATCH 0

// Everything is in memsaver::inline v0_3, so that two versions can coexist in one process without sharing a symbol.
namespace memsaver::inline v0_3 {

/// The three numbers of a version. Before 1.0, a new minor version may change the interface.
struct Version {
    int major;
    int minor;
    int patch;
    friend constexpr bool operator==(const Version&, const Version&) = default;
};

/// The version of the headers that this translation unit was compiled with.
inline constexpr Version version{MEMSAVER_VERSION_MAJOR, MEMSAVER_VERSION_MINOR, MEMSAVER_VERSION_PATCH};

} // namespace memsaver::inline v0_3
