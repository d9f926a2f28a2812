mod admission;
mod consequences;
mod fixture;
mod kept;
mod remembered;
mod repetition;
mod shared_files;
