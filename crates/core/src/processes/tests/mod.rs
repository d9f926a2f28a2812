mod admission;
mod consequences;
mod fixture;
mod kept;
mod obstacles;
mod remembered;
mod repetition;
mod shared_files;
