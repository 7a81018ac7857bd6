/* A library that `covered` loads; build: -g -O0 -shared -fPIC */

static int twice(int n)
{
    return 2 * n;
}

static int unused(int n)
{
    return 3 * n;
}

int plugin(int n)
{
    if (n == 2)
        return twice(n);
    return unused(n);
}
