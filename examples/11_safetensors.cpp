// Weights from a safetensors file: loaded, paused without saving anything, and read from the file again on resume.
#include <memsaver/memsaver.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

using namespace memsaver;
using Json = nlohmann::json;

/// Writes the header size (eight bytes), the JSON header and the bytes of the tensors.
void write_model(const std::string& path) {
    Json header;
    std::vector<float> all;
    for (const auto& [name, count] : {std::pair{"embedding", 100'003}, {"layer.0", 65'536}, {"layer.1", 777'777}}) {
        const std::size_t begin = 4 * all.size();
        for (int i = 0; i < count; ++i) all.push_back(static_cast<float>(i) + static_cast<float>(begin));
        header[name] = {{"dtype", "F32"}, {"shape", {count}}, {"data_offsets", {begin, 4 * all.size()}}};
    }
    const std::string text = header.dump();
    const std::uint64_t size = text.size();
    std::ofstream file{path, std::ios::binary};
    file.write(reinterpret_cast<const char*>(&size), sizeof size) << text;
    file.write(reinterpret_cast<const char*>(all.data()), static_cast<std::streamsize>(4 * all.size()));
}

int main() {
    const std::string path =
        (std::filesystem::temp_directory_path() / ("model." + std::to_string(::getpid()) + ".safetensors")).string();
    write_model(path);

    std::ifstream file{path, std::ios::binary};
    std::uint64_t header_bytes = 0;
    file.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
    std::string text(header_bytes, '\0');
    file.read(text.data(), static_cast<std::streamsize>(header_bytes));
    const Json header = Json::parse(text);
    const std::size_t data = sizeof header_bytes + header_bytes; // file offset of the first tensor
    const std::size_t data_bytes = std::filesystem::file_size(path) - data;

    MemorySaver saver{HostDriver{1_GiB}}; // CudaDriver{0} on a GPU
    const Arena model = saver.arena("model", FileSource{});
    const Buffer<char> weights{model, data_bytes};
    model.load(weights.data(), data_bytes, path, data); // one load for all tensors: same layout as the file

    std::map<std::string, const float*> tensors;
    for (const auto& [name, about] : header.items()) {
        if (name != "__metadata__") // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast)
            tensors[name] =
                reinterpret_cast<const float*>(weights.data() + about["data_offsets"][0].get<std::size_t>());
    }
    const float last = tensors.at("layer.1")[777'776];
    std::cout << saver.pause("model") << '\n' << saver.resume("model") << '\n'; // saved 0 B; read from the file

    std::vector<char> expected(data_bytes);
    file.seekg(static_cast<std::streamoff>(data));
    file.read(expected.data(), static_cast<std::streamsize>(data_bytes));
    const bool same =
        std::memcmp(weights.data(), expected.data(), data_bytes) == 0; // a HostDriver's memory is host memory
    std::filesystem::remove(path);
    if (!same || tensors.at("layer.1")[777'776] != last) return EXIT_FAILURE;
    std::cout << tensors.size() << " tensors, " << format_bytes(data_bytes) << ", identical to the file\n";
}
