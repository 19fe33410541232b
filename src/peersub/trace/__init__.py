"""The one trace: what each driver says happened, and who reads it: checkers, `explain`, people."""
