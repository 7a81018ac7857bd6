/* build: -O1
 *
 * Calls a function for each of its arguments, with the argument and its length. Prints how many there were. */
#include <stdio.h>
#include <string.h>

__attribute__((noipa)) long t_word(const char *word, long length) {
    return word[0] + length;
}

int main(int count, char **words) {
    volatile long sum = 0;
    for (int i = 1; i < count; i++) {
        sum += t_word(words[i], (long)strlen(words[i]));
    }
    printf("words %d\n", count - 1);
    return 0;
}
