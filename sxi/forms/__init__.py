"""The special forms, by what they are for.  Importing a module here enters its forms in `eval.FORMS`."""
