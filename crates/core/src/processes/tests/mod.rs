mod fixture;
mod kept;
mod remembered;
mod repetition;
