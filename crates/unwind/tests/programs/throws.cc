// An exception passes functions with cleanups.
#include <cstdio>
#include <stdexcept>
#include <string>

struct Guard {
    std::string text;
    ~Guard() { std::fprintf(stdout, "%s\n", text.c_str()); }
};

__attribute__((noinline)) long deepest(long n) {
    Guard guard{"deepest"};
    if (n > 0) throw std::runtime_error("thrown " + std::to_string(n));
    return n;
}

__attribute__((noinline)) long between(long n, std::string name) {
    Guard guard{name};
    return deepest(n) + name.size();
}

int main(int argc, char **) {
    try {
        return between(argc, "between");
    } catch (const std::exception &error) {
        return std::printf("%s\n", error.what()) < 0;
    }
}
