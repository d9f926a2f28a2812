mod remembered;
mod repetition;
