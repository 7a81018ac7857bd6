/* build: -O1 -shared -fPIC
 *
 * Two modules of the same shape, whose functions begin with the same byte and are not the same: with and without
 * -DOTHER. */
long twin_work(long a);
__asm__(".text\n"
        ".globl twin_work\n"
        ".type twin_work, @function\n"
        "twin_work:\n"
#ifdef OTHER
        "  lea 1(%rdi), %rax\n"
#else
        "  lea (%rdi,%rdi,2), %rax\n"
        "  nop\n"
#endif
        "  ret\n"
        ".size twin_work, . - twin_work\n");
