"""gin files and flags, checked as a whole before gin reads them.

gin stops at the first fault, accepts a macro that nothing uses, and imports before it parses. Here
`files.read` finds all that can be seen in the text alone, at once and without an import; then
`resolve.resolve` imports what the files name and checks functions, parameters, the types of values
and that each binding has an effect. What comes out is one text that says the same as all files and
flags together, and where each value comes from.
"""
