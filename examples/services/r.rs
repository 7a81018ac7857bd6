//! A service in Rust for the cookbook.
//!
//!     rustc -g -C opt-level=1 r.rs
//!     ./r 60

mod shop {
    #[inline(never)]
    pub fn price(count: u64, each: u64) -> u64 {
        std::hint::black_box(count) * each
    }
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(60);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    let mut sum = 0u64;
    for i in 0.. {
        if std::time::Instant::now() >= end {
            break;
        }
        sum = sum.wrapping_add(shop::price(i % 4, std::hint::black_box(25)));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    std::hint::black_box(sum);
}
