/* Python as a program around its library: `python3` of distributions that build it so. */
int Py_BytesMain(int argc, char **argv);

int main(int argc, char **argv)
{
    return Py_BytesMain(argc, argv);
}
